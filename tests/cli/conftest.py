"""What tests of the command line share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.runs import last_of_each

from sliceformer_lab.__main__ import main


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """The command line in this process, in a temporary folder; a later word replaces one with the same key."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SLICEFORMER_DATA")  # data are in `data` of this folder
    return lambda *words: main(last_of_each(words))
