"""Lines of a run's progress."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.plans import run
from support.runs import small_config

from sliceformer_lab.callbacks import progress
from sliceformer_lab.callbacks.progress import EpochLines
from sliceformer_lab.runs.plain_text import format_clock


def test_long_epoch_prints_the_time_that_the_run_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "FIRST", 0.0)
    monkeypatch.setattr(progress, "EVERY", 0.0)
    run(small_config("data.batch_size=32", "reference=null"), tmp_path / "run")
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("step ")]
    assert [line.split()[1] for line in lines] == [f"{step}/8" for step in range(2, 9)]  # 2 epochs of 4 batches
    assert all(re.search(r"\d\.\d\d s/step, \d+:\d\d min left, \d\.\d GB$", line) for line in lines)


def test_time_left_counts_neither_the_first_step_nor_what_comes_before_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    moments = iter([100.0, 150.0, 152.0, 152.5])  # first batch starts and ends, second ends, epoch ends
    monkeypatch.setattr(progress, "time", SimpleNamespace(perf_counter=lambda: next(moments)))
    task = SimpleNamespace(num_steps=62, optim=SimpleNamespace(last_step=None))
    facts = {"is_global_zero": True, "current_epoch": 0, "max_epochs": 31, "fast_dev_run": False}
    trainer = SimpleNamespace(global_step=0, lightning_module=task, callback_metrics={}, **facts)
    lines: Any = EpochLines()
    lines.on_train_start(trainer, task)
    for step in (1, 2):
        lines.on_train_batch_start(trainer, task, None, step - 1)
        trainer.global_step = step
        lines.on_train_batch_end(trainer, task, None, None, step - 1)
    lines.on_train_epoch_end(trainer, task)
    within, epoch = capsys.readouterr().out.splitlines()
    assert "step 2/62  2.00 s/step, 2:00 min left" in within
    assert epoch.endswith("5.0 s/epoch, 2:30 min left")


@pytest.mark.parametrize(("seconds", "text"), [(59.9, "0:59 min"), (3599, "59:59 min"), (7325, "2:02 h")])
def test_remaining_time_is_in_minutes_or_hours(seconds: float, text: str) -> None:
    assert format_clock(seconds) == text


@pytest.mark.parametrize(("seconds", "pace"), [(0.08, "12.5 steps/s"), (26.74, "26.74 s/step")])
def test_the_pace_of_slow_steps_is_not_zero(seconds: float, pace: str) -> None:
    assert progress.format_pace(seconds) == pace
