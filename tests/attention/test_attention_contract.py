"""Every option of conf/attention keeps the contract of `sliceformer_lab.attention.base.Attention`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from sliceformer_lab.attention import build_layer
from sliceformer_lab.attention.contract import (
    CHECKS,
    Factory,
    broken_rule,
    check_gradients_reach_everything,
    check_implied_map_gives_the_mix,
    check_padding_changes_nothing,
)
from sliceformer_lab.config.compose import load_option, option_names


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))
@pytest.mark.parametrize("name", option_names("attention"))
def test_attention_keeps_the_contract(name: str, check: Callable[[Factory], None]) -> None:
    assert broken_rule(check, load_option("attention", name)) is None


CAUSAL = ("mha", "depthwise_conv", "hsm", "linear", "lion_selective", "random_permutation")  # what causal=true changes
OTHERWISE = (check_padding_changes_nothing, check_gradients_reach_everything, check_implied_map_gives_the_mix)


@pytest.mark.parametrize("check", OTHERWISE, ids=lambda check: check.__name__.removeprefix("check_"))
@pytest.mark.parametrize("name", CAUSAL)
def test_causal_layer_keeps_the_contract(name: str, check: Callable[[Factory], None]) -> None:
    check(lambda spec: build_layer(load_option("attention", name), replace(spec, causal=True)))
