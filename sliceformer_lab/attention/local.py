"""Local attention: softmax inside blocks of tokens."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from torch import Tensor

from sliceformer_lab.attention.base import LayerSpec
from sliceformer_lab.attention.blocked import attend_blocks, real_tokens, to_blocks, to_tokens
from sliceformer_lab.attention.query_key import QueryKeyAttention
from sliceformer_lab.batch import Padding


class Local(QueryKeyAttention):
    """Softmax attention among the tokens of each block of `block_size`. (B, N, dim) -> (B, N, dim).

    Blocks are contiguous; the last may be short. Differs from the published LRA code, whose blocks are strided and
    masked as if they were not. Raises ValueError for block_size < 1.
    """

    complexity = "N C b"
    source = "Tay et al. 2021 (Long Range Arena), local attention"

    def __init__(self, spec: LayerSpec, *, block_size: Annotated[int, Field(ge=1)] = 50) -> None:
        super().__init__(spec)
        if block_size < 1:
            raise ValueError(f"block_size must be at least 1, got {block_size}")
        self.block_size = block_size
        self.order_sensitive = 1 < block_size < (spec.max_len or block_size + 1)

    def attend(self, v: Tensor, q: Tensor, k: Tensor, padding: Padding | None, dropout: float) -> Tensor:
        """(B, H, N, E) values, (B, H, N, D) queries and keys -> (B, H, N, E)."""
        num_tokens = q.shape[2]
        size = min(self.block_size, num_tokens)
        full = padding is None and num_tokens % size == 0
        seen = None if full else to_blocks(real_tokens(q, padding), size).mT  # (B or 1, 1, K, 1, b)
        q, k, v = (to_blocks(t, size) for t in (q, k, v))  # (B, H, K, b, D or E)
        return to_tokens(attend_blocks(q, k, v, seen, dropout), num_tokens)
