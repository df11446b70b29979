"""A run's configuration is checked once and its data are built once, before anything runs."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import pytest
from support.runs import SMALL, last_of_each

from sliceformer_lab.__main__ import main
from sliceformer_lab.config.checked import check_config
from sliceformer_lab.training.build import build_data


def count_calls(function: Callable[..., Any], calls: Counter[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts the calls of a function, by whatever name a module of ours has imported it.

    A module that an earlier test imported first holds what counted its calls there.
    """

    @wraps(function)
    def counted(*arguments: Any, **options: Any) -> Any:
        calls[function.__name__] += 1
        return function(*arguments, **options)

    for module in [module for name, module in sys.modules.items() if name.startswith("sliceformer_lab")]:
        for name in [name for name, value in vars(module).items() if getattr(value, "__wrapped__", value) is function]:
            monkeypatch.setattr(module, name, counted)


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("optim=auto", "optim.epochs=null", "optim.target_steps=2", "data.batch_size=null"),  # chosen from the data
        ("budget=params:60K",),
    ],
)
def test_a_run_checks_its_configuration_once_and_builds_its_data_once(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = Counter[str]()
    for function in (check_config, build_data):
        count_calls(function, calls, monkeypatch)
    assert main(last_of_each([*SMALL, *words, "optim.max_steps=2", f"paths.outputs={tmp_path}"])) == 0
    assert calls == {"check_config": 1, "build_data": 1}
