"""Sparse Sinkhorn attention: each block also attends to a block that a learned soft sort assigns to it."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from sliceformer_lab.attention.base import LayerSpec
from sliceformer_lab.attention.blocked import attend_blocks, real_tokens, to_blocks, to_tokens
from sliceformer_lab.attention.precision import widen
from sliceformer_lab.attention.query_key import QueryKeyAttention
from sliceformer_lab.batch import Padding
from sliceformer_lab.config.option_types import Count, Positive


class Sinkhorn(QueryKeyAttention):
    """Softmax over a block's own keys and a doubly stochastic mixture of all blocks' keys. (B, N, dim) -> (B, N, dim).

    The scores of a block for all others are computed from its summed keys. Divided by `temperature` and normalised by
    columns and rows `num_iters` times, they are the mixture P of a head, which applies to keys and values. Padding adds
    zero to a mixture, and blocks of padding are excluded. Training adds no Gumbel noise.
    Raises ValueError without spec.max_len.
    """

    complexity = "N C (b + N / b)"
    source = "Tay et al. 2020, Sparse Sinkhorn Attention, sections 3.1-3.2"
    deviation = "LRA: strided blocks; a row softmax in place of the normalisation; each block receives the sum of all"

    def __init__(
        self,
        spec: LayerSpec,
        *,
        block_size: Count = 50,
        num_iters: Count = 8,
        temperature: Positive = 0.75,
    ) -> None:
        super().__init__(spec)
        self.block_size, self.num_iters, self.temperature = block_size, num_iters, temperature
        num_blocks = -(-self.max_len // block_size)
        self.order_sensitive = num_blocks > 1
        # without bias, because the normalisation cancels it; one block needs no sort
        self.sort = nn.Linear(self.head_dim, num_blocks, bias=False) if num_blocks > 1 else None

    def attend(self, v: Tensor, q: Tensor, k: Tensor, padding: Padding | None, dropout: float) -> Tensor:
        """(B, H, N, E) values, (B, H, N, D) queries and keys -> (B, H, N, E)."""
        real = real_tokens(v, padding)
        queries, keys, values = (to_blocks(x, self.block_size) for x in (q, k.where(real, 0), v.where(real, 0)))
        real = to_blocks(real, self.block_size)
        order = self.sorting(keys, real[..., 0, 0])
        keys, values = (torch.cat([x, _mix_blocks(x, order)], dim=3) for x in (keys, values))
        # the first block is the fullest: a slot without a token there holds a mixture of padding only
        seen = torch.cat([real, real[:, :, :1].expand_as(real)], dim=3).mT
        return to_tokens(attend_blocks(queries, keys, values, seen, dropout), q.shape[2])

    def sorting(self, keys: Tensor, real: Tensor) -> Tensor:
        """The mixture of blocks: keys (B, H, K, b, D), real (B or 1, 1, K) -> P (B, H, K, K).

        Rows of real blocks sum to 1, columns nearly so; a block of padding is mapped to itself.
        """
        if self.sort is None:
            return keys.new_ones(1, 1, 1, 1)
        scores = widen(self.sort(keys.sum(dim=3))[..., : keys.shape[2]]) / self.temperature
        alone = torch.eye(keys.shape[2], device=keys.device).log()  # 0 on the diagonal, -inf elsewhere
        scores = scores.where(real[..., :, None] & real[..., None, :], alone)
        for _ in range(self.num_iters):
            scores = scores - scores.logsumexp(dim=-2, keepdim=True)
            scores = scores - scores.logsumexp(dim=-1, keepdim=True)
        return scores.exp().to(keys.dtype)


def _mix_blocks(blocks: Tensor, order: Tensor) -> Tensor:
    """Blocks (B, H, K, b, D) mixed by the matrices P (B, H, K, K)."""
    return torch.unflatten(order @ blocks.flatten(3), -1, blocks.shape[3:])
