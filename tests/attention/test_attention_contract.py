"""Every option of conf/attention keeps the contract of `sliceformer_lab.attention.base.Attention`."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sliceformer_lab.attention.contract import CHECKS, Factory, broken_rule
from sliceformer_lab.config.compose import load_option, option_names


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))
@pytest.mark.parametrize("name", option_names("attention"))
def test_attention_keeps_the_contract(name: str, check: Callable[[Factory], None]) -> None:
    assert broken_rule(check, load_option("attention", name)) is None
