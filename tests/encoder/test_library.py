"""Use from a notebook: the public names."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import sliceformer_lab
from sliceformer_lab.attention.csp import CSP
from sliceformer_lab.config.schema import ConfigError


def test_attention_is_the_named_one_with_the_overrides() -> None:
    attention = sliceformer_lab.build_attention(
        "csp", dim=384, num_heads=6, max_len=196, head_dim=32, grid=(14, 14), overrides={"group_size": 7}
    )
    assert isinstance(attention, CSP) and attention.group_size == 7
    assert (attention.spec.max_len, attention.spec.grid, attention.width) == (196, (14, 14), 192)
    assert attention(torch.randn(2, 196, 384)).shape == (2, 196, 384)


def test_a_hybrid_takes_its_first_layer() -> None:
    attention = sliceformer_lab.build_attention("hybrid", dim=8, num_heads=2, overrides={"pattern": ["mean", "mha"]})
    assert type(attention).__name__ == "Mean"


@pytest.mark.parametrize(
    ("name", "overrides", "message"),
    [
        ("cps", {}, "did you mean csp"),
        ("softmax", {}, "did you mean mha"),
        ("csp", {"group_sise": 2}, "did you mean group_size"),
        ("csp", {"group_size": "two"}, "attention.group_size: given 'two'"),
    ],
)
def test_a_wrong_name_or_option_is_refused_in_one_sentence(
    name: str, overrides: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError, match=message) as error:
        sliceformer_lab.build_attention(name, dim=8, num_heads=2, max_len=4, **overrides)
    assert "\n" not in str(error.value)


def test_options_are_keywords_or_overrides() -> None:
    size: dict[str, Any] = {"dim": 8, "num_heads": 2, "max_len": 16}
    as_keyword = sliceformer_lab.build_attention("csp", **size, group_size=4)
    as_override = sliceformer_lab.build_attention("csp", **size, overrides={"group_size": 4})
    assert as_keyword.group_size == as_override.group_size == 4


def test_every_public_name_is_there() -> None:
    assert all(callable(getattr(sliceformer_lab, name)) for name in sliceformer_lab.__all__)
    with pytest.raises(AttributeError, match="no attribute 'attentions'"):
        _ = sliceformer_lab.attentions
