"""Every option of conf/attention keeps the contract of `sliceformer_lab.attention.base.Attention`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from support.attention_checks import (
    CHECKS,
    Factory,
    check_implied_map_gives_the_mix,
    check_padding_changes_nothing,
)

from sliceformer_lab.attention import build_layer
from sliceformer_lab.config.compose import load_option, option_names


def exempt(check: Callable[[Factory], None], options: dict[str, Any]) -> bool:
    """The published handling of padding breaks the rules on padding; it exists for comparison."""
    rules = (check_padding_changes_nothing, check_implied_map_gives_the_mix)  # whose maps read from real tokens only
    return check in rules and "published_padding" in options["_target_"]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))
@pytest.mark.parametrize("layer", [0, 3], ids=lambda layer: f"layer{layer}")
@pytest.mark.parametrize("name", option_names("attention"))
def test_attention_keeps_the_contract(name: str, layer: int, check: Callable[[Factory], None]) -> None:
    options = load_option("attention", name)
    if not exempt(check, options):
        check(lambda spec: build_layer(options, replace(spec, index=layer)))
