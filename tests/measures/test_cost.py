"""Counted costs equal those worked out by hand."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from sliceformer_lab.measures.cost import Cost, count_cost
from sliceformer_lab.permute import shift_sort

B, N, C, H = 2, 16, 8, 2
x = torch.randn(B, N, C)


def test_linear_costs_one_multiply_add_per_weight_and_token() -> None:
    assert count_cost(lambda: nn.Linear(C, 3)(x)) == Cost(multiply_adds=B * N * C * 3)


def test_attention_costs_two_products_of_n_by_n() -> None:
    heads = x.unflatten(-1, (H, -1)).transpose(1, 2)
    whole = Cost(multiply_adds=2 * B * N * N * C)
    assert count_cost(lambda: F.scaled_dot_product_attention(heads, heads, heads)) == whole
    mask = torch.ones(N, N, dtype=torch.bool)
    assert count_cost(lambda: F.scaled_dot_product_attention(heads, heads, heads, attn_mask=mask)) == whole


def test_depthwise_convolution_costs_its_kernel_per_value() -> None:
    convolution = nn.Conv1d(C, C, 3, padding=1, groups=C)
    assert count_cost(lambda: convolution(x.mT)) == Cost(multiply_adds=B * N * C * 3)


def test_complete_sort_costs_n_log_n_comparisons_per_channel() -> None:
    whole = Cost(comparisons=B * C * N * 4)
    assert count_cost(lambda: x.sort(dim=1)) == whole
    assert count_cost(lambda: torch.sort(x, dim=1, stable=True, descending=True)) == whole
    assert count_cost(lambda: x.mT.contiguous().argsort()) == whole


def test_pair_sort_costs_one_comparison_per_pair_and_bound() -> None:
    even, odd = x[:, ::2], x[:, 1::2]
    as_minima = count_cost(lambda: torch.stack([torch.minimum(even, odd), torch.maximum(even, odd)], dim=2))
    assert as_minima == Cost(comparisons=B * N * C)
    assert count_cost(lambda: x.unflatten(1, (-1, 2)).sort(dim=2)) == as_minima


def test_shift_sort_of_pairs_costs_one_comparison_per_pair() -> None:
    v = torch.randn(2, 8, 6)
    assert count_cost(lambda: shift_sort(v, torch.arange(6), group_size=2)).comparisons == v.numel() // 2


def test_extremes_and_top_k_cost_comparisons() -> None:
    assert count_cost(lambda: x.amax(1)) == Cost(comparisons=B * C * (N - 1))
    assert count_cost(lambda: x.min(1)) == Cost(comparisons=B * C * (N - 1))
    assert count_cost(lambda: x.topk(4, dim=1)) == Cost(comparisons=B * N * C * 2)


def test_permutations_cost_moves() -> None:
    index = torch.zeros(B, 5, C, dtype=torch.int64)
    assert count_cost(lambda: x.gather(1, index)) == Cost(moves=B * 5 * C)
    assert count_cost(lambda: x[:, [3, 1, 2]]) == Cost(moves=B * 3 * C)
    assert count_cost(lambda: torch.zeros_like(x).scatter(1, index, x)) == Cost(moves=B * 5 * C)
    for moved in (lambda: x.roll(1, dims=1), lambda: x.flip(1), lambda: x.index_select(1, torch.arange(N))):
        assert count_cost(moved) == Cost(moves=x.numel())


def test_fourier_transform_costs_five_halves_n_log_n() -> None:
    z = torch.randn(B, N, dtype=torch.complex64)
    assert count_cost(lambda: torch.fft.fft(z)) == Cost(multiply_adds=round(2.5 * B * N * 4))
    assert count_cost(lambda: torch.fft.fft2(z)) == Cost(multiply_adds=round(2.5 * B * N * 5))
    there_and_back = count_cost(lambda: torch.fft.irfft(torch.fft.rfft(torch.randn(B, N)), n=N))
    assert there_and_back == Cost(multiply_adds=round(2.5 * B * N * 4))


def test_views_and_elementwise_arithmetic_are_free() -> None:
    assert count_cost(lambda: (x.transpose(1, 2) + 1).relu() * 2) == Cost()


def test_meta_tensors_are_counted_without_memory() -> None:
    huge = torch.empty(2**20, 2**16, device="meta")
    assert count_cost(lambda: huge.sort(dim=1)) == Cost(comparisons=2**36 * 16)
