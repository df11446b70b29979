"""The references of the benchmark: softmax attention in three implementations, and the published operators.

The published operators are reimplemented with the steps of their code (CSP: a repeated int64 index, gather, view, sort;
Sliceformer: sort of the strided axis); they give the same values as `shift_sort`.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sliceformer_lab.attention.base import ALONE, Attention, BlockInputs, LayerSpec
from sliceformer_lab.permute.schedule import shift_steps


class FusedSoftmax(Attention):
    """Softmax attention with torch's fused kernel and one projection for q, k, v. (B, N, dim) -> (B, N, dim)."""

    order_sensitive = False
    complexity = "N^2 C"
    source = "Vaswani et al. 2017, equation (1)"

    def __init__(self, spec: LayerSpec) -> None:
        super().__init__(spec)
        self.value = nn.Linear(spec.dim, 3 * self.width, bias=spec.value_bias)

    def project(self, x: Tensor) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Values, queries and keys, each (B, N, H*D)."""
        q, k, v = self.value(x).chunk(3, dim=-1)
        return v, q, k

    def mix(self, v: Tensor, q: Tensor | None = None, k: Tensor | None = None, given: BlockInputs = ALONE) -> Tensor:
        """(B, N, H*D) each -> (B, N, H*D). Raises ValueError without q or k."""
        if q is None or k is None:
            raise ValueError("softmax attention mixes with queries and keys: mix(v, q, k)")
        seen = None if given.padding is None else given.padding.mask[:, None, None, :]
        return self.merge_heads(self.attend(self.split_heads(q), self.split_heads(k), self.split_heads(v), seen))

    def attend(self, q: Tensor, k: Tensor, v: Tensor, seen: Tensor | None) -> Tensor:
        """(B, H, N, D) each, and the keys to see (B, 1, 1, N) -> (B, H, N, D)."""
        return F.scaled_dot_product_attention(q, k, v, attn_mask=seen)


class PackedSoftmax(FusedSoftmax):
    """Softmax attention on the real tokens alone, one after the other: torch's varlen_attn, for 16 bits on a GPU."""

    def mix(self, v: Tensor, q: Tensor | None = None, k: Tensor | None = None, given: BlockInputs = ALONE) -> Tensor:
        """(B, N, H*D) each -> (B, N, H*D), zero at padding. Raises ValueError without q, k or padding."""
        from torch.nn.attention.varlen import varlen_attn

        if q is None or k is None or given.padding is None:
            raise ValueError("packed softmax attention mixes the real tokens of a padded batch: mix(v, q, k, given)")
        rows = given.padding.mask.flatten().nonzero().squeeze(1)  # the processor waits for it, in each call
        starts = F.pad(given.padding.lengths.cumsum(0), (1, 0)).to(torch.int32)
        queries, keys, values = (x.flatten(0, 1)[rows].view(-1, self.spec.num_heads, self.head_dim) for x in (q, k, v))
        longest = v.shape[1]
        mixed = cast(Tensor, varlen_attn(queries, keys, values, starts, starts, longest, longest))
        return torch.zeros_like(v).flatten(0, 1).index_copy(0, rows, mixed.flatten(1)).view_as(v)


class PlainSoftmax(FusedSoftmax):
    """Softmax attention in plain operations, with the N x N map in memory."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor, seen: Tensor | None) -> Tensor:
        """(B, H, N, D) each, and the keys to see (B, 1, 1, N) -> (B, H, N, D)."""
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
        return (scores if seen is None else scores.masked_fill(~seen, -math.inf)).softmax(dim=-1) @ v


class TorchMHA(Attention):
    """torch's own nn.MultiheadAttention. (B, N, dim) -> (B, N, dim)."""

    accepts_padding = False
    order_sensitive = False
    complexity = "N^2 C"
    source = "torch.nn.MultiheadAttention"

    def __init__(self, spec: LayerSpec) -> None:
        super().__init__(replace(spec, project=False))
        self.inner = nn.MultiheadAttention(spec.dim, spec.num_heads, batch_first=True)

    def mix(self, v: Tensor, q: Tensor | None = None, k: Tensor | None = None, given: BlockInputs = ALONE) -> Tensor:
        """(B, N, dim) -> (B, N, dim), with projections."""
        mixed: Tensor = self.inner(v, v, v, need_weights=False)[0]
        return mixed


class PublishedCSP(Attention):
    """CSP's operator as in the published code, with the shifts of `csp`. (B, N, dim) -> (B, N, dim)."""

    accepts_padding = False
    complexity = "N C log G"
    source = "CSP, published code"
    index: Tensor  # (N, C) int64

    def __init__(self, spec: LayerSpec, *, group_size: int = 2) -> None:
        super().__init__(spec)
        self.group_size = group_size
        num_tokens = spec.max_len or 0
        steps = shift_steps("linear_paper", self.width, num_tokens)
        self.register_buffer("index", shift_index(torch.tensor(steps), num_tokens), persistent=False)

    def mix(self, v: Tensor, q: Tensor | None = None, k: Tensor | None = None, given: BlockInputs = ALONE) -> Tensor:
        """(B, N, C) -> (B, N, C)."""
        return published_csp(v, self.index, self.group_size)


class PublishedSliceformer(Attention):
    """Sliceformer's sort as in the published code. (B, N, dim) -> (B, N, dim)."""

    accepts_padding = False
    complexity = "N C log N"
    source = "Sliceformer, published code"

    def mix(self, v: Tensor, q: Tensor | None = None, k: Tensor | None = None, given: BlockInputs = ALONE) -> Tensor:
        """(B, N, C) -> (B, N, C)."""
        return published_sort(v)


def shift_index(steps: Tensor, num_tokens: int) -> Tensor:
    """Shifts (C,) -> source tokens (N, C) int64: slot i of channel c takes token (i - steps[c]) mod N."""
    return (torch.arange(num_tokens, device=steps.device)[:, None] - steps) % num_tokens


def published_csp(v: Tensor, index: Tensor, group_size: int) -> Tensor:
    """Shift and group sort of (B, N, C) with an index (N, C) repeated for every sample; G divides N."""
    shifted = v.gather(1, index.repeat(v.shape[0], 1, 1))
    if group_size == 1:
        return shifted
    windows = shifted.view(v.shape[0], -1, group_size, v.shape[2])
    return windows.sort(dim=2).values.view(v.shape)


def published_sort(v: Tensor) -> Tensor:
    """Sort every channel of (B, N, C) over the strided token axis."""
    return v.sort(dim=-2).values
