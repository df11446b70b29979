"""Softpick: softmax shifted down by one and rectified, so that weights can be exactly zero."""

from __future__ import annotations

from math import sqrt

import torch.nn.functional as F
from torch import Tensor

from sliceformer_lab.attention.dropout import drop
from sliceformer_lab.attention.precision import widen
from sliceformer_lab.attention.query_key import QueryKeyAttention
from sliceformer_lab.batch import Padding

EPS = 1e-8


class Softpick(QueryKeyAttention):
    """relu(exp(s) - 1) / sum |exp(s) - 1| with s = q k^T / sqrt(D). (B, N, dim) -> (B, N, dim).

    Rows sum to 1 at most, and to 0 where all scores are negative.
    """

    order_sensitive = False
    complexity = "N^2 C"
    source = "Softpick, arXiv 2504.20966"
    deviation = "Softpick: the gradient is NaN where all scores of a row are below -88"

    def attend(self, v: Tensor, q: Tensor, k: Tensor, padding: Padding | None, dropout: float) -> Tensor:
        """(B, H, N, E) values, (B, H, N, D) queries and keys -> (B, H, N, E)."""
        scores = widen(q @ k.mT / sqrt(self.head_dim))
        counted = scores if padding is None else scores.masked_fill(~padding.mask[:, None, None], 0)
        top = counted.detach().amax(dim=-1, keepdim=True).clamp(min=0)
        moved = (counted - top).exp() - (-top).exp()  # (exp(s) - 1) / exp(top); 0 at padding
        weights = F.relu(moved) / (moved.abs().sum(dim=-1, keepdim=True) + EPS)
        return drop(weights.to(v.dtype), dropout) @ v
