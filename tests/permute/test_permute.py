"""shift_sort against a sort written out sample by sample, and the schedules of its steps and directions."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from sliceformer_lab.permute import shift_sort, shift_sort_index, use_backend
from sliceformer_lab.permute.schedule import distances_reached, shift_steps

BITS = {torch.bfloat16: torch.int16, torch.float16: torch.int16, torch.float32: torch.int32, torch.float64: torch.int64}
AWKWARD = (0.0, -0.0, 1.0, -1.0, 2.5, 1e-40, torch.inf, -torch.inf, torch.nan, -torch.nan)


def brute_force(
    v: Tensor,
    steps: Tensor | None,
    group_size: int | None,
    lengths: Tensor | None,
    descending: Tensor | bool,
    reference: bool,
) -> Tensor:
    """Roll and torch.sort of every window of every channel of every sample. (B, N, C) -> (B, N, C)."""
    batch, num_tokens, channels = v.shape
    size = group_size or num_tokens
    down = torch.as_tensor(descending).expand(-(-num_tokens // size), channels)
    rows = []
    for b in range(batch):
        n = num_tokens if lengths is None else int(lengths[b])
        columns = []
        for c in range(channels):
            step = 0 if steps is None or group_size is None or (reference and c == 0) else int(steps[c])
            windows = v[b, :n, c].roll(step % n).split(size)
            done = [w.sort(stable=True, descending=bool(down[k, c])).values for k, w in enumerate(windows)]
            if reference:
                leaders = v[b, :n, 0].split(size)
                done = [w[leader.argsort(stable=True).argsort()] for w, leader in zip(done, leaders, strict=True)]
            columns.append(torch.cat([*done, v.new_zeros(num_tokens - n)]))
        rows.append(torch.stack(columns, dim=1))
    return torch.stack(rows)


def assert_same_bits(left: Tensor, right: Tensor, what: str = "") -> None:
    assert left.dtype == right.dtype, what
    assert torch.equal(left.contiguous().view(BITS[left.dtype]), right.contiguous().view(BITS[right.dtype])), what


def awkward(generator: torch.Generator, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Values with many ties, both zeros, both infinities and NaN of both signs and of many bits."""
    v = torch.tensor(AWKWARD)[torch.randint(len(AWKWARD), shape, generator=generator)].to(dtype)
    payload = torch.randint(2, shape, generator=generator).to(BITS[dtype])
    return torch.where(v.isnan(), v.view(BITS[dtype]) | payload, v.view(BITS[dtype])).view(dtype)


@st.composite
def calls(
    draw: st.DrawFn, group_sizes: Sequence[int | None], tokens: st.SearchStrategy[int], channels: Sequence[int]
) -> dict[str, Any]:
    """Values, their cotangent and every argument of one call."""
    batch, num_tokens, num_channels = draw(st.integers(1, 3)), draw(tokens), draw(st.sampled_from(channels))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**16)))
    dtype, group_size = draw(st.sampled_from(list(BITS))), draw(st.sampled_from(group_sizes))
    num_windows = 1 if group_size is None else -(-num_tokens // group_size)
    shape = (batch, num_tokens, num_channels)
    values = {
        "awkward": awkward(generator, *shape, dtype=dtype),
        "ties": torch.randint(1, 4, shape, generator=generator).to(dtype),
        "normal": torch.randn(shape, generator=generator).to(dtype),
    }
    per_window = torch.rand(num_windows, num_channels, generator=generator) < 0.5
    return {
        "v": values[draw(st.sampled_from(["awkward", *values]))],
        "cotangent": torch.randn(shape, generator=generator).to(dtype),
        "steps": draw(st.sampled_from([None, torch.randint(0, 2 * num_tokens, (num_channels,), generator=generator)])),
        "group_size": group_size,
        "lengths": draw(st.sampled_from([None, torch.randint(1, num_tokens + 1, (batch,), generator=generator)])),
        "descending": draw(st.sampled_from([False, False, True, per_window[0], per_window])),
        "reference": draw(st.sampled_from([False, False, True])),
    }


FEW = calls([None, 1, 2, 2, 3, 4, 20], st.integers(1, 11), range(1, 6))


@settings(max_examples=150, deadline=None, derandomize=True)
@given(case=FEW)
def test_values_and_gradients_are_those_of_a_stable_sort(case: dict[str, Any]) -> None:
    v, cotangent = case.pop("v").requires_grad_(), case.pop("cotangent")
    case["descending"] = False if case["reference"] else case["descending"]  # the reference decides the order
    steps = case.pop("steps")
    with use_backend("reference"):  # others are held to it in test_permute_backends
        ours, theirs = shift_sort(v, steps, **case), brute_force(v, steps, **case)
    assert_same_bits(ours, theirs)
    (gradient,) = torch.autograd.grad(ours, v, cotangent)
    (expected,) = torch.autograd.grad(theirs, v, cotangent)
    assert_same_bits(gradient, expected)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(case=FEW)
def test_index_names_every_real_token_once_and_is_where_values_come_from(case: dict[str, Any]) -> None:
    v, steps, lengths = case.pop("v"), case.pop("steps"), case["lengths"]
    del case["cotangent"]
    index, moved = shift_sort_index(v, steps, **case), shift_sort(v, steps, **case)
    assert index.dtype == torch.int64
    for b in range(len(v)):
        n = v.shape[1] if lengths is None else int(lengths[b])
        assert torch.equal(index[b, :n].sort(dim=0).values, torch.arange(n)[:, None].expand(n, v.shape[2]))
        assert bool((index[b, n:] == -1).all())
        assert_same_bits(v[b].gather(0, index[b, :n]), moved[b, :n])
        assert not moved[b, n:].any()


def test_padding_may_hold_anything() -> None:
    v, lengths = torch.randn(3, 9, 4), torch.tensor([9, 4, 1])
    expected = shift_sort(v, torch.arange(4), group_size=2, lengths=lengths)
    for garbage in (1e3, -torch.inf, torch.nan):
        dirty = v.masked_fill(torch.arange(9)[:, None] >= lengths[:, None, None], garbage).requires_grad_()
        moved = shift_sort(dirty, torch.arange(4), group_size=2, lengths=lengths)
        assert_same_bits(moved, expected)
        (gradient,) = torch.autograd.grad(moved.sum(), dirty)
        assert torch.equal(gradient.sum(dim=(1, 2)), 4.0 * lengths)


def test_long_windows_keep_ties_in_order() -> None:
    v = torch.randint(4, (2, 500, 3)).float()  # an unstable sort shows only in windows this long
    assert torch.equal(shift_sort_index(v, None, group_size=None), v.sort(dim=1, stable=True).indices)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"group_size": 0}, "group_size must be at least 1"),
        ({"group_size": 2, "descending": torch.zeros(3, 4, dtype=torch.bool)}, "3 windows, but 8 tokens make 4"),
        ({"group_size": 2, "steps": torch.zeros(5, dtype=torch.int64)}, r"one per channel, \(4,\), got \(5,\)"),
        ({"group_size": 2, "lengths": torch.ones(2, dtype=torch.int64)}, r"one per sample, \(1,\), got \(2,\)"),
        ({"group_size": 2, "v": torch.zeros(1, 8, 4, dtype=torch.int64)}, "bfloat16, got torch.int64"),
    ],
)
def test_shift_sort_refuses(arguments: dict[str, Any], message: str) -> None:
    for function in (shift_sort, shift_sort_index):
        with pytest.raises(ValueError, match=message):
            function(**{"v": torch.zeros(1, 8, 4), "steps": None} | arguments)


def test_numbers_may_be_of_other_types() -> None:
    v, steps, lengths, down = torch.randn(2, 8, 4), torch.arange(4), torch.tensor([8, 3]), torch.tensor([1, 0, 0, 1])
    expected = shift_sort(v, steps, group_size=4, lengths=lengths, descending=down.bool())
    assert torch.equal(shift_sort(v, steps.int(), group_size=4, lengths=lengths.short(), descending=down), expected)


# Schedules


def reach(shift: Any, max_len: int, channels: int, depth: int) -> list[int]:
    layers = [shift_steps(shift, channels, max_len, num_heads=8, index=index, depth=depth) for index in range(depth)]
    return distances_reached(layers, max_len)


@pytest.mark.parametrize(
    ("max_len", "channels", "layers"), [(64, 64, 1), (128, 64, 2), (1024, 64, 2), (1024, 32, 3), (4096, 64, 3)]
)
def test_coprime_steps_reach_every_distance_in_a_few_layers(max_len: int, channels: int, layers: int) -> None:
    reached = reach("linear_coprime", max_len, channels, depth=4)
    assert reached[layers - 1] == max_len and reached[0] == min(channels + 1, max_len)  # and 0
    assert layers == 1 or reached[layers - 2] < max_len


def test_coprime_steps_differ_by_layer_and_are_spread_evenly() -> None:
    layers = [shift_steps("linear_coprime", 64, 1024, index=index, depth=4) for index in range(4)]
    assert len({tuple(layer) for layer in layers}) == 4
    for layer in layers:
        gaps = [b - a for a, b in pairwise([*sorted(layer), 1024])]
        assert max(gaps) <= 1.5 * 1024 / 64
