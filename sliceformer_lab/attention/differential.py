"""Differential attention: the difference of two softmax maps, so that weights can be negative."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sliceformer_lab.attention.base import LayerSpec
from sliceformer_lab.attention.query_key import QueryKeyAttention
from sliceformer_lab.attention.softmax import attend
from sliceformer_lab.batch import Padding

EPS = 1e-5


class Differential(QueryKeyAttention):
    """(softmax(q1 k1^T) - lambda softmax(q2 k2^T)) V, normalised in each head. (B, N, dim) -> (B, N, dim).

    q1 and q2 are the halves of a head's queries. Compare it with an attention of twice as many heads, whose score
    products are as wide. Raises ValueError for an odd width of the heads.
    """

    rotated_parts = 2
    maps_heads = False  # the norm is not linear in the values
    order_sensitive = False
    complexity = "N^2 C"
    source = "Differential Transformer, arXiv 2410.05258, equations (1)-(3)"

    def __init__(self, spec: LayerSpec) -> None:
        super().__init__(spec)
        if self.head_dim % 2:
            raise ValueError(f"differential halves the heads, so their width must be even, got {self.head_dim}")
        half = self.head_dim // 2
        self.start = 0.8 - 0.6 * math.exp(-0.3 * spec.index)  # lambda's initial value
        self.lambda_q1, self.lambda_k1, self.lambda_q2, self.lambda_k2 = (
            nn.Parameter(0.1 * torch.randn(half)) for _ in range(4)
        )
        self.scale = nn.Parameter(torch.ones(self.head_dim))  # of the norm, shared by the heads

    def attend(self, v: Tensor, q: Tensor, k: Tensor, padding: Padding | None, dropout: float) -> Tensor:
        """(B, H, N, D) values, queries and keys -> (B, H, N, D)."""
        seen = None if padding is None else padding.mask[:, None, None]
        halves = zip(q.chunk(2, dim=-1), k.chunk(2, dim=-1), strict=True)
        first, second = (attend(half_q, half_k, v, seen, dropout=dropout) for half_q, half_k in halves)
        out = first - self.factor().to(v.dtype) * second
        return (1 - self.start) * F.rms_norm(out, (self.head_dim,), self.scale.to(out.dtype), EPS)

    def factor(self) -> Tensor:
        """lambda, a scalar, in the type of the parameters: autocast would round a product by @."""
        first, second = (self.lambda_q1 * self.lambda_k1).sum(), (self.lambda_q2 * self.lambda_k2).sum()
        return first.exp() - second.exp() + self.start
