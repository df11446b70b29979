"""Cosformer: rectified queries and keys, reweighted by a cosine of their distance."""

from __future__ import annotations

from math import pi

import torch
import torch.nn.functional as F
from torch import Tensor

from sliceformer_lab.attention.base import LayerSpec
from sliceformer_lab.attention.kernel import KernelAttention
from sliceformer_lab.attention.precision import wide_type
from sliceformer_lab.batch import Padding


class Cosformer(KernelAttention):
    """Weights relu(q_i) . relu(k_j) cos(pi (i - j) / 2M), normalised, M = max_len. (B, N, dim) -> (B, N, dim).

    The cosine of a difference is a sum of two products, so each token has 2D features. A query whose products are all
    zero receives zeros. Raises ValueError without spec.max_len, and in `mix` for N > max_len, because weights would
    become negative.
    """

    order_sensitive = True
    complexity = "N C D"
    source = "Qin et al. 2022, equations (9) and (10)"
    deviation = "LRA: configuration files without code"

    def __init__(self, spec: LayerSpec) -> None:
        super().__init__(spec)
        self.horizon = self.max_len

    def features(self, q: Tensor, k: Tensor, padding: Padding | None) -> tuple[Tensor, Tensor]:
        """(B, H, N, D) queries and keys -> their features (B, H, N, 2D)."""
        self.refuse_longer(q.shape[2])
        places = torch.arange(q.shape[2], device=q.device, dtype=wide_type(q))[:, None]  # (N, 1)
        angles = places * (pi / (2 * self.horizon))
        cos, sin = angles.cos(), angles.sin()
        phi_q, phi_k = (torch.cat([x * cos, x * sin], dim=-1).to(x.dtype) for x in (F.relu(q), F.relu(k)))
        return phi_q, phi_k

    def denominator(self, total: Tensor) -> Tensor:
        """(B, H, N, 1) -> (B, H, N, 1), at least 1e-6."""
        return total.clamp(min=1e-6)
