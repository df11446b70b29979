"""LION: linear attention in both directions, with weights that may decay with the distance."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sliceformer_lab.attention.base import LayerSpec
from sliceformer_lab.attention.decayed_sum import decayed_sum
from sliceformer_lab.attention.kernel import KernelAttention
from sliceformer_lab.attention.precision import widen
from sliceformer_lab.batch import Padding


class Lion(KernelAttention):
    """Weights phi(q_i) . phi(k_j) M_ij, divided by their sum. (B, N, dim) -> (B, N, dim).

    `lit`: M = 1 and phi is elu + 1. `decay`: M_ij = lambda^|i - j| with a learned lambda in each head, and phi is
    silu + 0.5, normalised in each head. A causal layer keeps j <= i.
    """

    accepts_causal = True
    complexity = "N C D"
    decay: nn.Parameter
    source = "LION, arXiv 2502.16249, section 3"
    deviation = "LION: one head or one token fails, and decays are N x N matrices in training"

    def __init__(self, spec: LayerSpec, *, mask: Literal["lit", "decay"] = "lit") -> None:
        super().__init__(spec)
        self.decays = mask == "decay"
        self.order_sensitive = spec.causal or self.decays
        if self.decays:
            self.decay = nn.Parameter(torch.randn(spec.num_heads))  # sigmoid of it is lambda

    def features(self, q: Tensor, k: Tensor, padding: Padding | None) -> tuple[Tensor, Tensor]:
        """(B, H, N, D) queries and keys -> their features (B, H, N, D), all positive."""
        scale = q.shape[-1] ** -0.5
        if not self.decays:
            return (F.elu(q) + 1) * scale, F.elu(k) + 1
        return _unit_features(q) * scale, _unit_features(k)

    def attend(self, v: Tensor, q: Tensor, k: Tensor, padding: Padding | None, dropout: float) -> Tensor:
        """(B, H, N, E) values, (B, H, N, D) queries and keys -> (B, H, N, E)."""
        if not self.decays:
            return super().attend(v, q, k, padding, dropout)
        log_decay = F.logsigmoid(widen(self.decay))[None, :, None].expand(1, -1, v.shape[2])
        return self.attend_decayed(v, q, k, log_decay, padding)

    def attend_decayed(self, v: Tensor, q: Tensor, k: Tensor, log_decay: Tensor, padding: Padding | None) -> Tensor:
        """As `attend`, with log_decay (B or 1, H, N): what a path loses at its source and at each token between."""
        phi_q, phi_k = self.features(q, k, padding)
        if padding is not None:
            real = padding.mask[:, None, :, None]
            phi_k, v = phi_k.masked_fill(~real, 0), v.masked_fill(~real, 0)
            log_decay = log_decay.masked_fill(~real[..., 0], 0)
        v = torch.cat([v, torch.ones_like(v[..., :1])], dim=-1)  # the last channel sums the weights
        sums = _from_before(phi_q, phi_k, v, log_decay)
        if not self.spec.causal:
            sums = sums + _from_before(phi_q.flip(2), phi_k.flip(2), v.flip(2), log_decay.flip(2)).flip(2)
            sums = sums - (phi_q * phi_k).sum(dim=-1, keepdim=True) * v  # the token itself is in both
        return sums[..., :-1] / self.denominator(sums[..., -1:])


def _unit_features(x: Tensor) -> Tensor:
    """silu + 0.5, which is positive, divided by its norm over the head. (B, H, N, D) -> (B, H, N, D)."""
    return F.normalize(F.silu(x) + 0.5, dim=-1)


def _from_before(q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor) -> Tensor:
    """The weighted sums over the tokens up to each; the decay of the receiving token does not count."""
    return decayed_sum(q, k, v, F.pad(log_decay[..., :-1], (1, 0)))
