"""Local attention: softmax inside blocks of tokens."""

from __future__ import annotations

from typing import Annotated

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from sliceformer_lab.attention.base import LayerSpec
from sliceformer_lab.attention.query_key import QueryKeyAttention
from sliceformer_lab.batch import Padding


class Local(QueryKeyAttention):
    """Softmax attention among the tokens of each block of `block_size`. (B, N, dim) -> (B, N, dim).

    Blocks are contiguous; the last may be short. Differs from the published LRA code, whose blocks are strided and
    masked as if they were not. Raises ValueError for block_size < 1.
    """

    complexity = "N C G"
    source = "Tay et al. 2021 (Long Range Arena), local attention"

    def __init__(self, spec: LayerSpec, *, block_size: Annotated[int, Field(ge=1)] = 50) -> None:
        super().__init__(spec)
        if block_size < 1:
            raise ValueError(f"block_size must be at least 1, got {block_size}")
        self.block_size = block_size
        self.order_sensitive = spec.max_len is None or spec.max_len > block_size

    def attend(self, v: Tensor, q: Tensor, k: Tensor, padding: Padding | None, dropout: float) -> Tensor:
        """(B, H, N, E) values, (B, H, N, D) queries and keys -> (B, H, N, E)."""
        heads, num_tokens = q.shape[1:3]
        size = min(self.block_size, num_tokens)
        missing = -num_tokens % size  # to a whole number of blocks
        mask = self._seen(q, padding, missing, size)
        q, k, v = (_blocks(F.pad(t, (0, 0, 0, missing)), size) for t in (q, k, v))  # (B, H*K, G, D or E)
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout)
        return torch.unflatten(mixed, 1, (heads, -1)).flatten(2, 3)[:, :, :num_tokens]

    def _seen(self, q: Tensor, padding: Padding | None, missing: int, size: int) -> Tensor | None:
        """Which keys of its block a query sees (B or 1, H*K, 1, G), or None for all."""
        if padding is None and not missing:
            return None
        real = q.new_ones(1, q.shape[2], dtype=torch.bool) if padding is None else padding.mask
        mask = _blocks(F.pad(real, (0, missing))[:, None, :, None], size).mT  # (B or 1, K, 1, G)
        mask = mask | ~mask.any(dim=-1, keepdim=True)  # a block of padding sees itself: softmax of nothing is NaN
        return mask.repeat(1, q.shape[1], 1, 1)


def _blocks(x: Tensor, size: int) -> Tensor:
    """(B, H, K*G, D) -> (B, H*K, G, D)."""
    return torch.unflatten(x, 2, (-1, size)).flatten(1, 2)
