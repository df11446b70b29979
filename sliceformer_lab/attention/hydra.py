"""Hydra: a bidirectional state space model (Mamba-2) as one quasiseparable matrix, in plain torch."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sliceformer_lab.attention.base import ALONE, Attention, BlockInputs, LayerSpec
from sliceformer_lab.attention.decayed_sum import decayed_sum
from sliceformer_lab.attention.precision import widen
from sliceformer_lab.config.option_types import Count, OddCount

EPS = 1e-5


class Hydra(Attention):
    """Two selective state space models, one from each end, plus a weight for the token itself. (B, N, dim) -> the same.

    Values and state inputs pass a short depthwise convolution and silu. Step sizes, state inputs and outputs are
    computed from the tokens. The sums from both ends leave out the token itself and are read with the state outputs of
    the token before (after) it, as published. The result is normalised and gated. Padding has step size 0, which
    neither decays nor feeds a state. There are no biases in the projections, whatever the encoder says.
    `head_channels=null` divides the channels among the encoder's heads; published are 64.
    Raises ValueError if `head_channels` does not divide the channels.
    """

    mixable = False  # gate, step sizes and states are computed from the layer's input
    complexity = "N C S"
    source = "Hydra, arXiv 2407.09941, section 4; Mamba-2, arXiv 2405.21060 (chunks)"
    deviation = "Hydra: padding takes part"

    def __init__(
        self,
        spec: LayerSpec,
        *,
        state: Count = 64,
        kernel_size: OddCount = 7,
        expand: Count = 2,
        head_channels: Count | None = None,
    ) -> None:
        super().__init__(replace(spec, value_bias=False, out_bias=False), inner_mult=expand)
        if self.width % (head_channels or 1):
            raise ValueError(f"head_channels={head_channels} does not divide the {self.width} channels; choose another")
        self.heads = heads = self.width // head_channels if head_channels else spec.num_heads
        self.state = state
        self.gate = nn.Linear(spec.dim, self.width, bias=False)
        self.states = nn.Linear(spec.dim, 4 * state, bias=False)  # B and C forward, B and C backward
        self.steps = nn.Linear(spec.dim, 2 * heads, bias=False)  # forward, backward
        channels = self.width + 4 * state
        self.conv = nn.Conv1d(channels, channels, kernel_size, padding="same", groups=channels)
        step = torch.empty(heads).uniform_(math.log(0.001), math.log(0.1)).exp().clamp(min=1e-4)
        self.step_bias = nn.Parameter(step + (-(-step).expm1()).log())  # softplus of it is the step
        self.log_decay = nn.Parameter(torch.zeros(heads))  # A = -exp(log_decay)
        self.skip = nn.Linear(self.width, heads)  # W_D and D
        nn.init.ones_(self.skip.bias)
        self.norm = nn.Parameter(torch.ones(self.width))

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Values and gate (B, N, C), state inputs, outputs and step sizes (B, N, 4S + 2H)."""
        return self.value(x), self.gate(x), torch.cat([self.states(x), self.steps(x)], dim=-1)

    def mix(self, v: Tensor, q: Tensor | None = None, k: Tensor | None = None, given: BlockInputs = ALONE) -> Tensor:
        """Values (B, N, C), with the gate and the states of `project` as q and k -> (B, N, C).

        Raises ValueError without them.
        """
        if q is None or k is None:
            raise ValueError("hydra mixes with a gate and states from the layer's input: mix(v, gate, states)")
        states, steps = k[..., : 4 * self.state], k[..., 4 * self.state :]
        x = torch.cat([v, states], dim=-1)
        steps = F.softplus(widen(steps) + widen(self.step_bias).repeat(2))
        x, steps = (given.zero_padding(part) for part in (x, steps))
        x = F.silu(self.conv(x.mT).mT)
        v = x[..., : self.width]
        b_forward, c_forward, b_backward, c_backward = x[..., self.width :].chunk(4, dim=-1)
        values = torch.unflatten(v, -1, (self.heads, -1)).transpose(1, 2)  # (B, H, N, P)
        forward, backward = steps.mT.chunk(2, dim=1)  # (B, H, N)
        y = values * self.skip(v).mT[..., None]
        y = y + F.pad(self._scan_tokens(values, b_forward, c_forward, forward)[:, :, :-1], (0, 0, 1, 0))
        from_end = self._scan_tokens(values.flip(2), b_backward.flip(1), c_backward.flip(1), backward.flip(2)).flip(2)
        y = y + F.pad(from_end[:, :, 1:], (0, 0, 0, 1))
        y = F.rms_norm(self.merge_heads(y), (self.width,), self.norm.to(y.dtype), EPS)
        return y * F.silu(q)

    def _scan_tokens(self, v: Tensor, b: Tensor, c: Tensor, step: Tensor) -> Tensor:
        """The outputs of the model after each token: v (B, H, N, P), b and c (B, N, S), step (B, H, N)."""
        log_decay = -widen(self.log_decay).exp()[:, None] * step
        return decayed_sum(c[:, None], b[:, None], step.to(v.dtype)[..., None] * v, log_decay)
