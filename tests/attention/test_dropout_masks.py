"""What a dropout keeps for its gradient."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from sliceformer_lab.attention.dropout import drop


def test_the_mask_of_a_dropout_is_a_saved_tensor_that_hooks_can_drop() -> None:
    saved: list[Tensor] = []

    def pack(tensor: Tensor) -> int:
        saved.append(tensor)
        return len(saved) - 1

    x = torch.randn(4, 8, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda place: saved[place]):
        dropped = drop(x, 0.5)
    (mask,) = saved
    assert mask.dtype == torch.bool and mask.equal(dropped != 0)
    saved[0] = torch.zeros_like(mask)
    (gradient,) = torch.autograd.grad(dropped.sum(), x)
    assert gradient.equal(torch.zeros_like(x)), "the gradient reads what the hook returns"


@pytest.mark.parametrize("rate", [0.25, 0.5])
def test_the_gradient_of_a_dropout_is_its_mask_and_can_be_derived_again(rate: float) -> None:
    x = torch.randn(4, 8, dtype=torch.float64, requires_grad=True)
    dropped = drop(x, rate)
    (gradient,) = torch.autograd.grad(dropped.square().sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(gradient.sum(), x)
    kept = (dropped != 0).double() / (1 - rate)
    torch.testing.assert_close(gradient, 2 * dropped * kept)
    torch.testing.assert_close(second, 2 * kept.square())
