"""Lines of a run's progress."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.runs import small_config

from sliceformer_lab.callbacks import progress
from sliceformer_lab.training.run import run


def test_long_epoch_prints_the_time_that_the_run_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "FIRST", 0.0)
    monkeypatch.setattr(progress, "EVERY", 0.0)
    run(small_config("data.batch_size=32", "reference=null"), tmp_path / "run")
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("step ")]
    assert [line.split()[1] for line in lines] == [f"{step}/8" for step in range(1, 9)]  # 2 epochs of 4 batches
    assert all(re.search(r"\d\.\d\d s/step, 0:0\d min left, \d\.\d GB$", line) for line in lines)


def test_short_epochs_print_one_line_each(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(small_config("reference=null"), tmp_path / "run")
    assert not [line for line in capsys.readouterr().out.splitlines() if line.startswith("step ")]


@pytest.mark.parametrize(("seconds", "text"), [(59.9, "0:59 min"), (3599, "59:59 min"), (7325, "2:02 h")])
def test_remaining_time_is_in_minutes_or_hours(seconds: float, text: str) -> None:
    assert progress._minutes(seconds) == text
