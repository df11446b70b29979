"""Block attention in which every block also sees one that a learned, soft sort brings to it."""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor, nn

from sliceformer_lab.attention.base import LayerSpec
from sliceformer_lab.attention.blocked import attend_blocks, real_tokens, to_blocks, to_tokens
from sliceformer_lab.attention.query_key import QueryKeyAttention
from sliceformer_lab.batch import Padding


class Sinkhorn(QueryKeyAttention):
    """Softmax over a block's own keys and a doubly stochastic mixture of all blocks' keys. (B, N, dim) -> (B, N, dim).

    A block's summed keys give its scores for every other; dividing them by `temperature` and normalising columns and
    rows `num_iters` times makes them the mixture P, one for each head, that moves keys and values alike. Padding adds
    zero to a mixture, blocks of padding stay out of it. No Gumbel noise in training.
    Raises ValueError without spec.max_len.
    Source: Sparse Sinkhorn Attention (Tay et al. 2020), sections 3.1 and 3.2.
    """

    complexity = "N C (b + N / b)"
    source = "Tay et al. 2020, Sparse Sinkhorn Attention, sections 3.1-3.2"
    deviation = "LRA: strided blocks; a row softmax in place of the normalisation; each block receives the sum of all"

    def __init__(
        self,
        spec: LayerSpec,
        *,
        block_size: Annotated[int, Field(ge=1)] = 50,
        num_iters: Annotated[int, Field(ge=1)] = 8,
        temperature: Annotated[float, Field(gt=0)] = 0.75,
    ) -> None:
        super().__init__(spec)
        if block_size < 1 or num_iters < 1 or temperature <= 0:
            raise ValueError(
                "block_size and num_iters must be at least 1 and temperature above 0, "
                f"got {block_size}, {num_iters} and {temperature}"
            )
        if spec.max_len is None:
            raise ValueError("sinkhorn scores every block of the longest sequence; set max_len")
        self.block_size, self.num_iters, self.temperature = block_size, num_iters, temperature
        num_blocks = -(-spec.max_len // block_size)
        self.order_sensitive = num_blocks > 1
        # no bias: the normalisation takes out what a column has in common; one block needs no sort
        self.sort = nn.Linear(self.head_dim, num_blocks, bias=False) if num_blocks > 1 else None

    def attend(self, v: Tensor, q: Tensor, k: Tensor, padding: Padding | None, dropout: float) -> Tensor:
        """(B, H, N, E) values, (B, H, N, D) queries and keys -> (B, H, N, E)."""
        real = real_tokens(v, padding)
        queries, keys, values = (to_blocks(x, self.block_size) for x in (q, k.where(real, 0), v.where(real, 0)))
        real = to_blocks(real, self.block_size)
        order = self.sorting(keys, real[..., 0, 0])
        keys, values = (torch.cat([x, _moved(x, order)], dim=3) for x in (keys, values))
        # the first block is the fullest: where it has no token, a mixture is of padding alone
        seen = torch.cat([real, real[:, :, :1].expand_as(real)], dim=3).mT
        return to_tokens(attend_blocks(queries, keys, values, seen, dropout), q.shape[2])

    def sorting(self, keys: Tensor, real: Tensor) -> Tensor:
        """How much of each block goes to each: keys (B, H, K, b, D), real (B or 1, 1, K) -> P (B, H, K, K).

        Rows and columns of real blocks sum to 1, columns nearly so; a block of padding goes to itself.
        """
        if self.sort is None:
            return keys.new_ones(1, 1, 1, 1)
        scores: Tensor = self.sort(keys.sum(dim=3))[..., : keys.shape[2]].float() / self.temperature
        alone = torch.eye(keys.shape[2], device=keys.device).log()  # 0 on the diagonal, -inf elsewhere
        scores = scores.where(real[..., :, None] & real[..., None, :], alone)
        for _ in range(self.num_iters):
            scores = scores - scores.logsumexp(dim=-2, keepdim=True)
            scores = scores - scores.logsumexp(dim=-1, keepdim=True)
        return scores.exp().to(keys.dtype)


def _moved(blocks: Tensor, order: Tensor) -> Tensor:
    """Blocks (B, H, K, b, D) mixed by the matrices P (B, H, K, K)."""
    return torch.unflatten(order @ blocks.flatten(3), -1, blocks.shape[3:])
