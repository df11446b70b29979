"""What the tests of training share."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from support.plans import run
from support.runs import small_config


@pytest.fixture(scope="session")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """The folder of a small run with these options that nothing stopped; the same options are trained once.

    No test changes such a folder.
    """

    @cache
    def trained(*options: str) -> Path:
        folder = tmp_path_factory.mktemp("runs") / "whole"
        run(small_config(*options), folder)
        return folder

    return trained
