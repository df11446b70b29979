"""Longformer: sliding-window attention, and a few global tokens."""

from __future__ import annotations

import torch
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
from sliceformer_lab.config.option_types import Natural

_LARGEST_BLOCK = 32  # queries that share their gathered keys; a larger block copies less and masks more


class Longformer(QueryKeyAttention):
    """Token i attends to tokens i - back to i + ahead and to the global tokens. (B, N, dim) -> (B, N, dim).

    The first `num_global` tokens (CLS) are global: they attend to all tokens, with projections of their own, and all
    tokens attend to them. In a block that does the projections, both use the same projections.
    """

    complexity = "N C (back + ahead + global)"
    source = "Beltagy et al. 2020, sections 3.1-3.2"
    deviation = "LRA: the window masks an N x N matrix, so quadratic; global projections exist and are not used"

    def __init__(
        self,
        spec: LayerSpec,
        *,
        back: Natural = 255,
        ahead: Natural = 256,
        num_global: Natural = 0,
    ) -> None:
        super().__init__(spec)
        self.back, self.ahead, self.num_global = back, ahead, num_global
        self.block_size = min(_LARGEST_BLOCK, back + 1 + ahead)
        self.order_sensitive = num_global > 0 or spec.max_len is None or spec.max_len > min(back, ahead) + 1
        owns = num_global > 0 and spec.project
        self.maps_heads = not owns  # rows of global tokens act on values of their own
        self.global_query = self._projection(spec.dim, self.width, spec.value_bias) if owns else None
        self.global_key = self._projection(spec.dim, self.width, spec.value_bias) if owns else None
        self.global_value = self._projection(spec.dim, self.width, spec.value_bias) if owns else None

    def attend(self, v: Tensor, q: Tensor, k: Tensor, padding: Padding | None, dropout: float) -> Tensor:
        """(B, H, N, E) values, (B, H, N, D) queries and keys -> (B, H, N, E)."""
        mixed = self._attend_window(v, q, k, padding, dropout)
        if self.num_global == 0:
            return mixed
        rows = attend_everywhere(q[:, :, : self.num_global], k, v, padding, dropout)
        return torch.cat([rows, mixed[:, :, self.num_global :]], dim=2)

    def forward(self, x: Tensor, padding: Padding | None = None, bias: Tensor | None = None) -> Tensor:
        """(B, N, dim) -> (B, N, dim); bias is ignored."""
        if self.global_query is None or self.global_key is None or self.global_value is None:
            return super().forward(x, padding, bias)
        self.check_inputs(x, padding, bias)
        dropout = self.spec.attention_dropout if self.training else 0.0
        projected, queries, own_keys = self.project(x)
        v, q, k = (self.split_heads(t) for t in (projected, queries, own_keys))
        first = self.split_heads(self.rotated(self.global_query(x[:, : self.num_global])))
        keys, values = self.split_heads(self.rotated(self.global_key(x))), self.split_heads(self.global_value(x))
        rows = attend_everywhere(first, keys, values, padding, dropout)
        others = self._attend_window(v, q, k, padding, dropout)[:, :, self.num_global :]
        return self.project_out(projected, self.merge_heads(torch.cat([rows, others], dim=2)))

    def _attend_window(self, v: Tensor, q: Tensor, k: Tensor, padding: Padding | None, dropout: float) -> Tensor:
        """Each token attends to its window and the global tokens: -> (B, H, N, E)."""
        keys, values = (self._gather_keys(t, t[:, :, : self.num_global]) for t in (k, v))
        seen = self._mask_keys(real_tokens(v, padding))
        return to_tokens(attend_blocks(to_blocks(q, self.block_size), keys, values, seen, dropout), q.shape[2])

    def _gather_keys(self, x: Tensor, first: Tensor) -> Tensor:
        """The blocks that overlap the window, then the global tokens: (B, H, N, D) -> (B, H, K, W, D)."""
        blocks = to_blocks(x, self.block_size)
        back, ahead = (-(-reach // self.block_size) for reach in (self.back, self.ahead))
        return torch.cat([neighbours(blocks, back, ahead), for_each_block(first, blocks.shape[2])], dim=3)

    def _mask_keys(self, real: Tensor) -> Tensor:
        """The mask of the gathered keys of each query, each counted once: (B, 1, N, 1) -> (B, 1, K, b, W)."""
        token = torch.arange(real.shape[2], device=real.device)[:, None]
        gathered = self._gather_keys(real & (token >= self.num_global), real[:, :, : self.num_global]).mT
        size, num_near = self.block_size, gathered.shape[-1] - min(self.num_global, real.shape[2])
        slot = torch.arange(gathered.shape[-1], device=real.device)
        offset = slot + (-self.back // size) * size - torch.arange(size, device=real.device)[:, None]
        return gathered & (((offset >= -self.back) & (offset <= self.ahead)) | (slot >= num_near))
