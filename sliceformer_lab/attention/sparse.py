"""Sparse Transformer, fixed pattern: a token attends to its block and to a summary of all others."""

from __future__ import annotations

import torch
from torch import Tensor

from sliceformer_lab.attention.base import LayerSpec
from sliceformer_lab.attention.blocked import (
    attend_blocks,
    attend_everywhere,
    for_each_block,
    real_tokens,
    to_blocks,
    to_tokens,
)
from sliceformer_lab.attention.query_key import QueryKeyAttention
from sliceformer_lab.batch import Padding
from sliceformer_lab.config.option_types import Count, Natural


class Sparse(QueryKeyAttention):
    """A token attends to its own block and to the summary of every other block. (B, N, dim) -> (B, N, dim).

    The summary is a block's first token and its last `num_summary` tokens. With `causal`, a token attends only to
    itself and earlier tokens. With `cls_open`, token 0 attends to all tokens. Both heads of the published pattern are
    merged. Raises ValueError if num_summary is not below block_size.
    """

    complexity = "N C (b + c N / b)"
    source = "Child et al. 2019, section 4.2 (fixed)"
    deviation = "LRA: causal, as causal=true; the pattern masks an N x N matrix, so quadratic"

    def __init__(
        self,
        spec: LayerSpec,
        *,
        block_size: Count = 50,
        num_summary: Natural = 10,
        causal: bool = False,
        cls_open: bool = False,
    ) -> None:
        super().__init__(spec)
        if num_summary >= block_size:
            raise ValueError(f"num_summary must be within 0..block_size-1 = {block_size - 1}, got {num_summary}")
        self.block_size, self.num_summary, self.causal, self.cls_open = block_size, num_summary, causal, cls_open
        self.order_sensitive = causal or spec.max_len is None or spec.max_len > block_size

    def attend(self, v: Tensor, q: Tensor, k: Tensor, padding: Padding | None, dropout: float) -> Tensor:
        """(B, H, N, E) values, (B, H, N, D) queries and keys -> (B, H, N, E)."""
        queries, keys, values = (to_blocks(x, self.block_size) for x in (q, k, v))
        seen = self._mask_keys(to_blocks(real_tokens(v, padding), self.block_size))
        mixed = attend_blocks(queries, self._gather_keys(keys), self._gather_keys(values), seen, dropout)
        mixed = to_tokens(mixed, q.shape[2])
        if not self.cls_open:
            return mixed
        return torch.cat([attend_everywhere(q[:, :, :1], k, v, padding, dropout), mixed[:, :, 1:]], dim=2)

    def _gather_keys(self, blocks: Tensor) -> Tensor:
        """The tokens of a block, then the summary of all blocks: (B, H, K, b, D) -> (B, H, K, W, D)."""
        ends = torch.cat([blocks[:, :, :, :1], blocks[:, :, :, self.block_size - self.num_summary :]], dim=3)
        return torch.cat([blocks, for_each_block(ends.flatten(2, 3), blocks.shape[2])], dim=3)

    def _mask_keys(self, real: Tensor) -> Tensor:
        """The mask of the gathered keys of each query, each counted once: (B, 1, K, b, 1) -> (B, 1, K, b, W)."""
        num_blocks, size = real.shape[2:4]
        block = torch.arange(num_blocks, device=real.device)
        source = block.repeat_interleave(1 + self.num_summary)  # of each summary token
        far = source < block[:, None] if self.causal else source != block[:, None]  # (K, S)
        own = torch.ones(size, size, dtype=torch.bool, device=real.device)
        own = own.tril() if self.causal else own
        pattern = [own.expand(num_blocks, -1, -1), far[:, None].expand(-1, size, -1)]
        return self._gather_keys(real).mT & torch.cat(pattern, dim=-1)
