"""The layers of the operator's own package: CSP and Sliceformer as a program without the lab uses them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.testing import assert_close

from sliceformer_lab import build_attention
from sliceformer_lab.batch import Padding
from sliceformer_lab.errors import ConfigError
from sliceformer_lab.permute import nn, shift_sort

LENGTHS = torch.tensor([9, 1, 6])


@pytest.mark.parametrize(
    ("layer", "name", "options"),
    [
        (lambda: nn.CSP(8, 12), "csp", {}),
        (
            lambda: nn.CSP(8, 12, group_size=3, shift="unit"),
            "csp",
            {"group_size": 3, "shift": "unit"},
        ),
        (lambda: nn.CSP(8, 12, group_size=1), "csp_shift_only", {}),
        (lambda: nn.Sliceformer(8), "sliceformer", {}),
    ],
)
def test_a_layer_is_the_attention_of_the_lab_also_under_padding(layer: Any, name: str, options: dict[str, Any]) -> None:
    ours = layer()
    theirs = build_attention(name, dim=8, num_heads=2, max_len=12, **options)
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(3, 9, 8)
    padding = Padding.from_lengths(LENGTHS, 9)
    assert padding is not None
    expected = theirs(x, padding)
    assert_close(ours(x, LENGTHS)[padding.mask], expected[padding.mask])
    assert_close(ours(x), theirs(x))
    assert_close(ours(x[1:2, :1]), ours(x, LENGTHS)[1:2, :1])


def test_a_window_below_one_token_is_refused() -> None:
    with pytest.raises(ValueError, match="group_size must be at least 1"):
        nn.CSP(8, 12, group_size=0)


def test_steps_that_a_model_on_the_meta_device_would_lose_are_refused() -> None:
    with torch.device("meta"):
        nn.Sliceformer(8)
        build_attention("mha", dim=8, num_heads=2, max_len=12)
        with pytest.raises(ValueError, match="as from_pretrained does, would lack them; call its constructor"):
            nn.CSP(8, 12)
        with pytest.raises(ConfigError, match=r"csp computes steps when it is built, .* from_pretrained"):
            build_attention("csp", dim=8, num_heads=2, max_len=12)


@pytest.mark.parametrize("group_size", [1, 2, 4, None])
def test_a_monotone_quantiser_commutes_with_shift_and_sort(group_size: int | None) -> None:
    """So the mixer adds no error to values in 8 bits: sort(q(v)) = q(sort(v)), bit for bit."""
    generator = torch.Generator().manual_seed(0)
    for scale in (0.5, 0.05, 0.003):  # all values in a few steps, in many, most of them cut off
        v = torch.randn(3, 11, 8, generator=generator)

        def quantised(x: torch.Tensor, scale: float = scale) -> torch.Tensor:
            return torch.fake_quantize_per_tensor_affine(x, scale, 3, -128, 127)

        arguments = {"group_size": group_size, "lengths": torch.tensor([11, 4, 1])}
        sorted_last = shift_sort(quantised(v), torch.arange(8), **arguments)
        padding = torch.arange(11) >= arguments["lengths"][:, None]
        quantised_last = quantised(shift_sort(v, torch.arange(8), **arguments)).masked_fill(padding[..., None], 0)
        assert_close(sorted_last, quantised_last, rtol=0, atol=0)
