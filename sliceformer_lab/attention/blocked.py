"""Attention over blocks of tokens: each block of queries attends to a few blocks of keys, never to all tokens.

Tokens are arranged in blocks (B, H, K, b, D), with zeros after the last token, and gathered keys as (B, H, K, W, D).
The mask of real tokens has D = 1 and is gathered by the same functions.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from sliceformer_lab.attention.softmax import attend
from sliceformer_lab.batch import Padding


def real_tokens(x: Tensor, padding: Padding | None) -> Tensor:
    """The mask of the real tokens of x (B, H, N, D). -> (B or 1, 1, N, 1) bool."""
    if padding is None:
        return x.new_ones(1, 1, x.shape[2], 1, dtype=torch.bool)
    return padding.mask[:, None, :, None]


def to_blocks(x: Tensor, size: int) -> Tensor:
    """Tokens (B, H, N, D) as blocks (B, H, K, size, D), the last one completed with zeros or False."""
    return torch.unflatten(F.pad(x.contiguous(), (0, 0, 0, -x.shape[2] % size)), 2, (-1, size))


def to_tokens(blocks: Tensor, num_tokens: int) -> Tensor:
    """The first tokens (B, H, N, D) of blocks (B, H, K, b, D)."""
    return blocks.flatten(2, 3)[:, :, :num_tokens]


def neighbours(blocks: Tensor, back: int, ahead: int) -> Tensor:
    """Each block with the blocks around it: (B, H, K, b, D) -> (B, H, K, (back + 1 + ahead) * b, D), zeros outside."""
    around = F.pad(blocks, (0, 0, 0, 0, back, ahead))
    return around.unfold(2, back + 1 + ahead, 1).movedim(-1, 3).flatten(3, 4)


def for_each_block(x: Tensor, num_blocks: int) -> Tensor:
    """The same tokens for every block: (B, H, S, D) -> (B, H, K, S, D), without a copy."""
    return x[:, :, None].expand(-1, -1, num_blocks, -1, -1)


def attend_blocks(
    q: Tensor, k: Tensor, v: Tensor, seen: Tensor | None, dropout: float, bias: Tensor | None = None
) -> Tensor:
    """Queries (B, H, K, b, D) over gathered keys (B, H, K, W, D), values (B, H, K, W, E) -> (B, H, K, b, E).

    seen (B or 1, H or 1, K, b or 1, W) is True on the keys that a query attends to, None for all. A query without any,
    which padding can be, attends to all keys, because softmax would divide 0 by 0. bias (1, H, 1, b, W) adds to scores.
    """
    heads_blocks, mask = q.shape[1:3], bias
    if seen is not None:
        seen = seen | ~seen.any(dim=-1, keepdim=True)
        mask = seen if bias is None else bias.masked_fill(~seen, -torch.inf)
    if mask is not None:
        mask = mask.expand(-1, *heads_blocks, -1, -1).flatten(1, 2)
    q, k, v = (x.flatten(1, 2) for x in (q, k, v))  # (B, H*K, ...): the fused kernels need 4 axes
    return torch.unflatten(attend(q, k, v, mask, dropout=dropout), 1, heads_blocks)


def attend_everywhere(q: Tensor, k: Tensor, v: Tensor, padding: Padding | None, dropout: float) -> Tensor:
    """A few queries (B, H, Q, D) over all real tokens (B, H, N, D or E) -> (B, H, Q, E)."""
    mask = None if padding is None else padding.mask[:, None, None]
    return attend(q, k, v, mask, dropout=dropout)
