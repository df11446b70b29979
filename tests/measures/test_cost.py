"""Counted costs equal those worked out by hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from sliceformer_lab.measures.cost import Cost, count_cost
from sliceformer_lab.permute import shift_sort

B, N, C, H = 2, 16, 8, 2
x = torch.randn(B, N, C)
even, odd, heads = x[:, ::2], x[:, 1::2], x.unflatten(-1, (H, -1)).transpose(1, 2)
index = torch.zeros(B, 5, C, dtype=torch.int64)
waves = torch.randn(B, N, dtype=torch.complex64)
huge = torch.empty(2**20, 2**16, device="meta")  # counted without memory

PRODUCTS = Cost(multiply_adds=2 * B * N * N * C)
WHOLE_SORT, PAIRS = Cost(comparisons=B * C * N * 4), Cost(comparisons=B * N * C)
EXTREME, MOVES = Cost(comparisons=B * C * (N - 1)), Cost(moves=B * N * C)
FOURIER = Cost(multiply_adds=round(2.5 * B * N * 4))
CASES: dict[str, tuple[Callable[[], object], Cost]] = {
    "a multiply-add per weight and token": (lambda: nn.Linear(C, 3)(x), Cost(multiply_adds=B * N * C * 3)),
    "two products of N by N": (lambda: F.scaled_dot_product_attention(heads, heads, heads), PRODUCTS),
    "the same under a mask": (
        lambda: F.scaled_dot_product_attention(heads, heads, heads, attn_mask=torch.ones(N, N, dtype=torch.bool)),
        PRODUCTS,
    ),
    "a kernel per value": (
        lambda: nn.Conv1d(C, C, 3, padding=1, groups=C)(x.mT),
        Cost(multiply_adds=B * N * C * 3),
    ),
    "N log N comparisons per channel": (lambda: x.sort(dim=1), WHOLE_SORT),
    "of a stable sort": (lambda: torch.sort(x, dim=1, stable=True, descending=True), WHOLE_SORT),
    "of an argsort": (lambda: x.mT.contiguous().argsort(), WHOLE_SORT),
    "log2(n + 1) comparisons to find a place among n": (
        lambda: torch.searchsorted(x[..., :7].contiguous(), x),
        Cost(comparisons=B * N * C * 3),
    ),
    "a comparison per pair and bound": (
        lambda: torch.stack([torch.minimum(even, odd), torch.maximum(even, odd)], dim=2),
        PAIRS,
    ),
    "a sort of pairs": (lambda: x.unflatten(1, (-1, 2)).sort(dim=2), PAIRS),
    "a comparison per pair of CSP": (
        lambda: shift_sort(x, torch.arange(C), group_size=2),
        Cost(comparisons=B * N * C // 2, moves=B * N * C),
    ),
    "the largest": (lambda: x.amax(1), EXTREME),
    "the smallest": (lambda: x.min(1), EXTREME),
    "the largest four": (lambda: x.topk(4, dim=1), Cost(comparisons=B * N * C * 2)),
    "gathered values": (lambda: x.gather(1, index), Cost(moves=B * 5 * C)),
    "indexed values": (lambda: x[:, [3, 1, 2]], Cost(moves=B * 3 * C)),
    "scattered values": (lambda: torch.zeros_like(x).scatter(1, index, x), Cost(moves=B * 5 * C)),
    "rolled values": (lambda: x.roll(1, dims=1), MOVES),
    "flipped values": (lambda: x.flip(1), MOVES),
    "selected values": (lambda: x.index_select(1, torch.arange(N)), MOVES),
    "5/2 N log N of a Fourier transform": (lambda: torch.fft.fft(waves), FOURIER),
    "there and back of real numbers": (lambda: torch.fft.irfft(torch.fft.rfft(waves.real), n=N), FOURIER),
    "in two dimensions": (lambda: torch.fft.fft2(waves), Cost(multiply_adds=round(2.5 * B * N * 5))),
    "nothing for views and arithmetic": (lambda: (x.transpose(1, 2) + 1).relu() * 2, Cost()),
    "a sort of what no memory holds": (lambda: huge.sort(dim=1), Cost(comparisons=2**36 * 16)),
}


@pytest.mark.parametrize("name", CASES)
def test_an_operation_costs_what_it_does_by_hand(name: str) -> None:
    call, cost = CASES[name]
    assert count_cost(call) == cost
