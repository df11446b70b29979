"""BigBird: block attention to neighbours, to both ends of the sequence and to a few random blocks."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from sliceformer_lab.attention.base import LayerSpec
from sliceformer_lab.attention.blocked import (
    attend_blocks,
    attend_everywhere,
    for_each_block,
    neighbours,
    real_tokens,
    to_blocks,
    to_tokens,
)
from sliceformer_lab.attention.query_key import QueryKeyAttention
from sliceformer_lab.batch import Padding
from sliceformer_lab.config.option_types import Count, Natural


class BigBird(QueryKeyAttention):
    """A block attends to itself, both neighbours, the first, the last and random blocks. (B, N, dim) -> (B, N, dim).

    Tokens of the first and the last block attend to all tokens. The last block is that of spec.max_len, so it does not
    depend on the padding of a batch; shorter samples have none. Random blocks differ by head and are drawn once, at
    construction. Raises ValueError without spec.max_len.
    """

    complexity = "N C b (5 + random)"
    source = "Zaheer et al. 2020, section 2"
    deviation = "LRA: random blocks come from the first 1,024 tokens only; no attention dropout"
    random_blocks: Tensor  # (H, K, R) int64, 0 where fewer than R blocks can be drawn

    def __init__(
        self,
        spec: LayerSpec,
        *,
        block_size: Count = 64,
        num_random: Natural = 3,
    ) -> None:
        super().__init__(spec)
        self.block_size = block_size
        self.num_blocks = -(-self.max_len // block_size)
        self.order_sensitive = self.num_blocks > 4 + num_random  # with fewer blocks, each attends to all others
        self.register_buffer("random_blocks", _draw_blocks(spec.num_heads, self.num_blocks, num_random))

    def attend(self, v: Tensor, q: Tensor, k: Tensor, padding: Padding | None, dropout: float) -> Tensor:
        """(B, H, N, E) values, (B, H, N, D) queries and keys -> (B, H, N, E)."""
        queries, keys, values = (to_blocks(x, self.block_size) for x in (q, k, v))
        ends = torch.arange(queries.shape[2], device=v.device)[:: max(self.num_blocks - 1, 1)]  # one for a short batch
        seen = self._mask_keys(to_blocks(real_tokens(v, padding), self.block_size), ends)
        mixed = attend_blocks(queries, self._gather_keys(keys, ends), self._gather_keys(values, ends), seen, dropout)
        rows = attend_everywhere(queries[:, :, ends].flatten(2, 3), k, v, padding, dropout)
        mixed = mixed.index_copy(2, ends, torch.unflatten(rows, 2, (-1, self.block_size)).to(mixed.dtype))
        return to_tokens(mixed, q.shape[2])

    def _gather_keys(self, blocks: Tensor, ends: Tensor) -> Tensor:
        """The neighbours, the ends and the random blocks of each block: (B, H, K, b, D) -> (B, H, K, W, D)."""
        num_blocks = blocks.shape[2]
        drawn = self.random_blocks[:, :num_blocks].clamp(max=num_blocks - 1)  # blocks beyond the last are masked
        head = torch.arange(len(drawn), device=blocks.device)[:, None, None]
        far = for_each_block(blocks[:, :, ends].flatten(2, 3), num_blocks)
        return torch.cat([neighbours(blocks, 1, 1), far, blocks[:, head, drawn].flatten(3, 4)], dim=3)

    def _mask_keys(self, real: Tensor, ends: Tensor) -> Tensor:
        """The mask of the gathered keys, each counted once: (B, 1, K, b, 1) -> (B, H, K, 1, W)."""
        num_heads, num_blocks = len(self.random_blocks), real.shape[2]
        near = neighbours(real.index_fill(2, ends, False), 1, 1)
        far = for_each_block(real[:, :, ends].flatten(2, 3), num_blocks)
        common = torch.cat([near, far], dim=3).expand(-1, num_heads, -1, -1, -1)
        drawn = self.random_blocks[:, :num_blocks]
        there = ((drawn > 0) & (drawn < num_blocks))[..., None, None]  # (H, K, R, 1, 1)
        random = (real[:, 0, drawn.clamp(max=num_blocks - 1)] & there).flatten(3, 4)
        return torch.cat([common, random], dim=3).mT


def _draw_blocks(num_heads: int, num_blocks: int, num_random: int) -> Tensor:
    """Random blocks (H, K, R) for each block, all different, none of them an end or a neighbour."""
    block = torch.arange(num_blocks)
    others = ((block[:, None] - block).abs() > 1) & (block > 0) & (block < num_blocks - 1)
    number = torch.rand(num_heads, num_blocks, num_blocks).masked_fill(~others, -1)
    top, drawn = F.pad(number, (0, num_random), value=-1).topk(num_random, dim=-1)
    return drawn.masked_fill(top < 0, 0)
