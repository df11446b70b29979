"""S4D: a diagonal state space model in each channel, in both directions, as one long convolution."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from sliceformer_lab.attention.base import ALONE, Attention, BlockInputs, LayerSpec
from sliceformer_lab.attention.matrix_toeplitz import toeplitz_product
from sliceformer_lab.attention.precision import widen
from sliceformer_lab.config.option_types import EvenCount

BLOCK_STEPS = 64  # steps in time whose powers are computed one by one


class S4D(Attention):
    """D v plus the outputs of two diagonal state space models, one reading from each end. (B, N, dim) -> (B, N, dim).

    A model has state / 2 pairs of complex numbers in each channel. The one from the end reads the tokens after a token,
    without the token itself. Computed by FFT in float32 or better. The published GELU and gated output are
    left to the block.
    """

    maps_channels = True
    complexity = "N log N C, and N S C for its weights"
    source = "S4D, arXiv 2206.11893, sections 3 and 4.2 (S4D-Lin)"
    deviation = "S4D: a GELU and a gated linear map follow; here value and output projections stand around it"

    def __init__(self, spec: LayerSpec, *, state: EvenCount = 64) -> None:
        super().__init__(spec)
        self.from_start = _Kernel(self.width, state // 2)
        self.from_end = _Kernel(self.width, state // 2)
        self.skip = nn.Parameter(torch.randn(self.width))  # D

    def mix(self, v: Tensor, q: Tensor | None = None, k: Tensor | None = None, given: BlockInputs = ALONE) -> Tensor:
        """(B, N, C) -> (B, N, C)."""
        v = given.zero_padding(v)
        num_tokens = v.shape[1]
        past, future = self.from_start(num_tokens), self.from_end(num_tokens)[:, : num_tokens - 1]
        return self.skip.to(v.dtype) * v + toeplitz_product(v.mT[..., None], past, future)[..., 0].mT


class _Kernel(nn.Module):
    """The response of a diagonal state space model to a one: (C, N) for N steps in time."""

    def __init__(self, channels: int, pairs: int) -> None:
        super().__init__()
        span = math.log(0.1) - math.log(0.001)
        self.log_step = nn.Parameter(torch.rand(channels) * span + math.log(0.001))
        self.log_decay = nn.Parameter(torch.full((channels, pairs), math.log(0.5)))  # A = -exp(log_decay) + i frequency
        self.frequency = nn.Parameter((math.pi * torch.arange(pairs)).repeat(channels, 1))
        weights = torch.randn(channels, pairs, dtype=torch.get_default_dtype().to_complex())
        self.output = nn.Parameter(torch.view_as_real(weights).clone())
        for parameter in (self.log_step, self.log_decay, self.frequency):
            parameter.no_decay = True  # type: ignore[attr-defined]

    def forward(self, num_steps: int) -> Tensor:
        """2 Re sum_s C_s (exp(dt A_s) - 1) / A_s exp(dt A_s t) for t = 0 to N - 1. -> (C, N), in float32 or better.

        exp(dt A t) is computed as a product for t = block * BLOCK_STEPS + rest, so that no (C, S, N) tensor exists.
        """
        step = widen(self.log_step).exp()[:, None]
        decay, frequency = -widen(self.log_decay).exp(), widen(self.frequency)
        weight = torch.view_as_complex(widen(self.output)) / torch.complex(decay, frequency)
        decay, frequency = decay * step, frequency * step  # (C, S)
        weight = weight * torch.complex(  # exp(dt A) - 1 without cancellation
            decay.expm1() * frequency.cos() - 2 * (frequency / 2).sin().square(), decay.exp() * frequency.sin()
        )
        rest = torch.arange(BLOCK_STEPS, device=step.device)
        start = BLOCK_STEPS * torch.arange(num_steps // BLOCK_STEPS + 1, device=step.device)
        blocks, rests = (
            torch.polar((decay[..., None] * t).exp(), frequency[..., None] * t) for t in (start, rest)
        )  # (C, S, N / BLOCK_STEPS + 1), (C, S, BLOCK_STEPS)
        response = (weight[..., None] * blocks).mT @ rests  # (C, N / BLOCK_STEPS + 1, BLOCK_STEPS)
        return 2 * response.real.flatten(1)[:, :num_steps]
