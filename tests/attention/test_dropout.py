"""Dropout on a CPU: its distribution, its derivative and its seed."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from sliceformer_lab.attention.dropout import Dropout, drop

SHAPE = (50, 40, 50)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_numbers_are_dropped_at_the_rate_and_the_others_scaled_so_that_the_mean_stays(dtype: torch.dtype) -> None:
    x = torch.full(SHAPE, 2.0, dtype=dtype)
    dropped = drop(x, 0.1)
    assert dropped.dtype == dtype
    assert torch.equal(x, torch.full(SHAPE, 2.0, dtype=dtype))
    kept = dropped != 0
    assert abs(kept.double().mean() - 0.9) < 5 * (0.1 * 0.9 / x.numel()) ** 0.5
    assert_close(dropped[kept].double().mean().item(), 2 / 0.9, rtol=1e-2, atol=0)
    for axis in range(3):  # no row or column is dropped more than another, and neighbours are dropped independently
        others = [other for other in range(3) if other != axis]
        assert (kept.double().mean(others) - 0.9).abs().max() < 0.05
        first, second = (kept.narrow(axis, start, SHAPE[axis] - 1).double().flatten() for start in (0, 1))
        assert torch.stack([first, second]).corrcoef()[0, 1].abs() < 0.02


def test_gradients_and_second_derivatives_pass_what_was_kept() -> None:
    x = torch.randn(7, 5, dtype=torch.float64).T.requires_grad_()
    out = drop(x, 0.5)
    scale = (out != 0) * 2.0
    (gradient,) = torch.autograd.grad((out**3).sum(), x, create_graph=True)
    assert_close(out, x * scale)
    assert_close(gradient, 3 * x**2 * scale**3)
    (second,) = torch.autograd.grad(gradient.sum(), x)
    assert_close(second, 6 * x * scale**3)


def test_it_repeats_with_the_seed_and_leaves_evaluation_alone() -> None:
    layer, x = Dropout(0.5), torch.ones(SHAPE)
    torch.manual_seed(1)
    first, second = layer(x), layer(x)
    torch.manual_seed(1)
    assert torch.equal(layer(x), first)
    assert not torch.equal(first, second)
    assert layer.eval()(x) is x


def test_a_layer_that_drops_nothing_draws_nothing() -> None:
    state, x = torch.get_rng_state(), torch.randn(3, generator=torch.Generator().manual_seed(0))
    assert Dropout(0.0)(x) is x
    assert torch.equal(torch.get_rng_state(), state)
