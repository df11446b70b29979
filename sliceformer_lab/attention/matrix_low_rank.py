"""Products of narrow queries and keys without a softmax: content of low rank."""

from __future__ import annotations

from math import sqrt

from torch import Tensor

from sliceformer_lab.attention.base import LayerSpec
from sliceformer_lab.attention.query_key import QueryKeyAttention
from sliceformer_lab.batch import Padding
from sliceformer_lab.config.option_types import Count


class MatrixLowRank(QueryKeyAttention):
    """v + (Q K^T) V / sqrt(L r) without a softmax, with queries and keys of `rank` channels in each head.

    Raises ValueError without spec.max_len.
    """

    order_sensitive = False
    complexity = "N C r"
    source = "Hydra, arXiv 2407.09941, section 3"

    def __init__(self, spec: LayerSpec, *, rank: Count = 16) -> None:
        super().__init__(spec, qk_width=rank * spec.num_heads)
        self.scale = 1 / sqrt(self.max_len * rank)

    def attend(self, v: Tensor, q: Tensor, k: Tensor, padding: Padding | None, dropout: float) -> Tensor:
        """(B, H, N, E) values, (B, H, N, r) queries and keys -> (B, H, N, E)."""
        del dropout  # no weight is ever computed
        if padding is not None:
            k = k.masked_fill(~padding.mask[:, None, :, None], 0)
        return v + q @ ((self.scale * k).mT @ v)  # sums of unscaled products would leave float16
