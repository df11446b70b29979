"""Theorem 2 of CSP in numbers: grouped Sinkhorn attention of v_1 v_c^T becomes the aligned sort as tau falls."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch
from grouped_sinkhorn import grouped_sinkhorn, grouped_sinkhorn_maps
from torch import Tensor
from torch.testing import assert_close

from sliceformer_lab.attention import LayerSpec, build_layer
from sliceformer_lab.config.compose import load_option

TOKENS, CHANNELS = 16, 6
TAUS = (1.0, 0.3, 0.1, 0.03, 0.01)
GROUPS = (2, 4, 8, None)


def values() -> Tensor:
    """(2, 16, 6) whose channels hold the same 16 numbers, far enough apart that every best pairing is unique."""
    order = torch.rand(2, TOKENS, CHANNELS, generator=torch.Generator().manual_seed(0)).argsort(dim=1)
    return torch.linspace(-2, 2, TOKENS, dtype=torch.float64)[order]


def csp(v: Tensor, group_size: int | None, shift: str = "none") -> Tensor:
    """What `attention=csp` with reference=channel0 makes of v."""
    options = {"reference": "channel0", "shift": shift, "group_size": group_size}
    spec = LayerSpec(dim=CHANNELS, num_heads=1, max_len=TOKENS, project=False)
    return build_layer(load_option("attention", "csp") | options, spec).mix(v)


@pytest.mark.parametrize(
    "group_size", [GROUPS[0], *(pytest.param(size, marks=pytest.mark.slow) for size in GROUPS[1:])]
)
def test_distance_to_csp_falls_with_tau(group_size: int | None) -> None:
    v = values()
    expected = csp(v, group_size)
    approached = [grouped_sinkhorn(v, group_size=group_size, tau=tau, iterations=2000) for tau in TAUS]
    distances = [(y - expected).abs().max().item() for y in approached]
    assert all(later < earlier for earlier, later in pairwise(distances))
    assert distances[0] > 0.5 and distances[-1] < 0.01, distances


def test_shifted_values_approach_csp_with_its_shift() -> None:
    v = values()
    steps = range(CHANNELS)  # linear_paper with a reference: c * ceil(16 / 6) of channel c
    shifted = torch.stack([v[..., c].roll(3 * c, dims=1) for c in steps], dim=2)
    approached = grouped_sinkhorn(shifted, group_size=4, tau=0.01, iterations=2000)
    assert_close(approached, csp(v, 4, shift="linear_paper"), atol=0.01, rtol=0)


@pytest.mark.parametrize("tau", TAUS)
@pytest.mark.parametrize("group_size", GROUPS)
def test_rows_and_columns_of_every_map_sum_to_one(group_size: int | None, tau: float) -> None:
    maps = grouped_sinkhorn_maps(values(), group_size=group_size, tau=tau, iterations=2000)
    size = group_size or TOKENS
    assert maps.shape == (2, CHANNELS, TOKENS // size, size, size)
    assert_close(maps.sum(-2), torch.ones(maps.shape[:-1]).double(), atol=1e-9, rtol=0)
    assert_close(maps.sum(-1), torch.ones(maps.shape[:-1]).double(), atol=5e-3, rtol=0)


def test_one_iteration_normalises_rows_then_columns() -> None:
    v = values()[:1, :3, :2]
    a = (v[0, :, :1] @ v[0, :, 1:].T / 0.5).exp()
    a = a / a.sum(1, keepdim=True)
    maps = grouped_sinkhorn_maps(v, group_size=None, tau=0.5, iterations=1)
    assert_close(maps[0, 1, 0], a / a.sum(0, keepdim=True))


def test_the_map_of_channel_0_becomes_the_identity() -> None:
    distances = []
    for tau in TAUS:
        maps = grouped_sinkhorn_maps(values(), group_size=4, tau=tau, iterations=500)[:, 0]
        distances.append((maps - torch.eye(4)).abs().max().item())
    assert all(later < earlier for earlier, later in pairwise(distances))
    assert distances[-1] < 0.05


def test_tiny_tau_does_not_overflow() -> None:
    y = grouped_sinkhorn(100 * values().float(), group_size=4, tau=1e-6, iterations=5)
    assert y.isfinite().all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"group_size": 5}, "group_size=5 does not divide 16 tokens"),
        ({"tau": 0.0}, "tau must be above 0"),
        ({"iterations": 0}, "iterations at least 1"),
    ],
    ids=str,
)
def test_what_the_theorem_does_not_cover_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        grouped_sinkhorn(values(), **({"group_size": 4, "tau": 0.1, "iterations": 1} | options))
