"""Softmax of scaled scores times values, by the fastest way that a device has."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from sliceformer_lab.attention.dropout import Kept, keep, new_seed

BLOCK_BYTES = 2**21  # of a block's weights: about what the caches of a core hold
MAX_PLAIN_KEYS = 256  # up to here the weights take little memory in bfloat16

Block = tuple[slice, slice, slice]  # samples, heads, queries or keys


def attend(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, *, dropout: float = 0.0, causal: bool = False
) -> Tensor:
    """Queries (B, H, N, D), keys (B, H, S, D), values (B, H, S, E) -> (B, H, N, E), with `dropout` on the weights.

    mask, whose shape expands to (B, H, N, S), is True on the keys that a query sees, or a number added to each score.
    Each query sees a key. `causal` hides later keys, without a mask. All ways give the same values, up to rounding:
    torch's fused kernel; on a CPU with dropout, which that kernel lacks there, blocks of queries whose weights are
    computed again in the backward pass, so that memory grows with N; for few keys in bfloat16 on a CPU, where that
    kernel is slow, plain products. Blocks round the dropout rate to a multiple of 2^-16.
    """
    if q.device.type == "cpu" and not torch.compiler.is_compiling():
        if torch.is_autocast_enabled("cpu"):
            q, k, v = (x.to(torch.get_autocast_dtype("cpu")) for x in (q, k, v))
        if dropout > 0:
            mask = None if mask is None else mask.expand(*q.shape[:3], k.shape[2])
            mixed: Tensor = _BlockedSoftmax.apply(q, k, v, mask, dropout, causal, new_seed())
            return mixed
        if q.dtype == torch.bfloat16 and k.shape[2] <= MAX_PLAIN_KEYS:
            return torch.matmul(_compute_weights(q * q.shape[-1] ** -0.5, k, mask, 0 if causal else None), v)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout, is_causal=causal)


class _BlockedSoftmax(torch.autograd.Function):
    """Softmax weights, dropped and times values; the backward pass computes weights and random numbers again."""

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, dropout: float, causal: bool, seed: int
    ) -> Tensor:
        """The mixed values (B, H, N, E)."""
        q, k, v = q.contiguous() * q.shape[-1] ** -0.5, k.contiguous(), v.contiguous()
        kept = Kept(dropout, seed)
        mixed = v.new_empty(*q.shape[:3], v.shape[-1])
        for block, seen in _split_blocks(q, k, causal):
            weights = _block_weights(q, k, mask, block, seen)
            mixed[block] = torch.matmul(keep(weights, kept.draw(weights.shape)), v[seen])
        ctx.save_for_backward(q, k, v, mask)
        ctx.options = dropout, causal, seed
        return mixed.mul_(kept.factor)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of queries, keys, values and, if it is a bias that learns, of the mask."""
        q, k, v, mask = ctx.saved_tensors
        dropout, causal, seed = ctx.options
        kept = Kept(dropout, seed)
        grad = grad.contiguous() * kept.factor
        of_q, of_k, of_v = torch.empty_like(q), _start_sum(k), _start_sum(v)
        of_mask = torch.zeros(mask.shape, dtype=mask.dtype) if ctx.needs_input_grad[3] else None
        for block, seen in _split_blocks(q, k, causal):
            weights = _block_weights(q, k, mask, block, seen)
            drawn = kept.draw(weights.shape)
            of_weights = keep(torch.matmul(grad[block], v[seen].mT), drawn)
            of_scores = torch.ops.aten._softmax_backward_data(of_weights, weights, -1, weights.dtype)
            of_q[block] = torch.matmul(of_scores, k[seen])
            of_k[seen[:2]][..., seen[2]] += torch.matmul(q[block].mT, of_scores)
            of_v[seen[:2]][..., seen[2]] += torch.matmul(grad[block].mT, keep(weights, drawn))
            if of_mask is not None:
                of_mask[block][..., seen[2]] = of_scores
        of_q *= q.shape[-1] ** -0.5
        return of_q, of_k.mT.to(k.dtype), of_v.mT.to(v.dtype), of_mask, None, None, None


def _start_sum(x: Tensor) -> Tensor:
    """The start of a sum over blocks, transposed, which makes the products faster: (B, H, S, D) -> (B, H, D, S)."""
    exact = torch.promote_types(x.dtype, torch.float32)
    return torch.zeros(x.mT.shape, dtype=exact)


def _block_weights(q: Tensor, k: Tensor, mask: Tensor | None, block: Block, seen: Block) -> Tensor:
    first = None if seen[2].stop is None else block[2].start
    return _compute_weights(q[block], k[seen], None if mask is None else mask[block], first)


def _split_blocks(q: Tensor, k: Tensor, causal: bool) -> Iterator[tuple[Block, Block]]:
    """Samples, heads and queries of each block, and where the keys are that it sees."""
    batch, heads, queries = q.shape[:3]
    fitting = max(1, BLOCK_BYTES // (q.element_size() * k.shape[2]))
    sizes = max(1, fitting // (heads * queries)), max(1, min(heads, fitting // queries)), min(queries, fitting)
    for starts in product(*(range(0, end, size) for end, size in zip((batch, heads, queries), sizes, strict=True))):
        samples, some, rows = (slice(start, start + size) for start, size in zip(starts, sizes, strict=True))
        yield (samples, some, rows), (samples, some, slice(rows.stop if causal else None))


def _compute_weights(q: Tensor, k: Tensor, mask: Tensor | None, first: int | None) -> Tensor:
    """Softmax weights of scaled queries; those of a causal layer are tokens `first`, first + 1, ... of the keys."""
    scores = torch.matmul(q, k.mT)
    if mask is not None:
        scores = scores.masked_fill_(~mask, -torch.inf) if mask.dtype == torch.bool else scores.add_(mask)
    if first is not None:
        later = torch.ones_like(scores[0, 0, :, first:], dtype=torch.bool).triu(1)
        scores[..., first:].masked_fill_(later, -torch.inf)
    return torch.softmax(scores, -1)
