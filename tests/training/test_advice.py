"""Warnings of a run, from its recipe and its curves."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from support.plans import build_data, build_task, run
from support.runs import small_config

from sliceformer_lab.runs.folder import read_summary
from sliceformer_lab.training.interfaces import TaskModule
from sliceformer_lab.training.optim import OptimOptions
from sliceformer_lab.training.results.advice import warnings_of


@pytest.fixture
def task() -> TaskModule:
    config = small_config("optim.epochs=10", "optim.warmup_steps=0")
    task = build_task(config, build_data(config).spec)
    task.num_steps = 100
    return task


def history(accuracy: list[float], train_loss: float = 0.5, val_loss: float = 0.6) -> pd.DataFrame:
    """Metrics of ten epochs of ten steps, as the CSV logger writes them: two rows per epoch."""
    steps = [9 + 10 * epoch for epoch in range(len(accuracy))]
    val = pd.DataFrame({"step": steps, "val/accuracy": accuracy, "val/loss": val_loss, "train/loss": np.nan})
    train = pd.DataFrame({"step": steps, "val/accuracy": np.nan, "val/loss": np.nan, "train/loss": train_loss})
    return pd.concat([val, train]).sort_values("step", kind="stable", ignore_index=True)


FLAT = [0.5, 0.9, 0.8, 0.8, 0.8, 0.8, 0.8, 0.8, 0.8, 0.8]
RISING = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95]


def test_run_that_learned_early_and_well_has_no_warnings(task: TaskModule) -> None:
    assert warnings_of(task, history(FLAT), "val/accuracy", 20) == []


def test_run_that_still_improves_is_advised_to_be_longer(task: TaskModule) -> None:
    (warning,) = warnings_of(task, history(RISING), "val/accuracy", 100)
    assert "still improving" in warning and "0.8000 before" in warning and "optim.epochs=20" in warning


def test_late_best_epoch_without_notable_gain_says_only_that(task: TaskModule) -> None:
    (warning,) = warnings_of(task, history([*[0.9] * 9, 0.901]), "val/accuracy", 100)
    assert "best epoch is the last" in warning


def test_error_that_falls_late_is_an_improvement(task: TaskModule) -> None:
    task.monitor_mode = "min"  # type: ignore[misc]
    (warning,) = warnings_of(task, history(RISING[::-1]), "val/accuracy", 100)
    assert "still improving" in warning and "0.3000 before" in warning


def test_training_far_better_than_validation_is_memorising(task: TaskModule) -> None:
    (warning,) = warnings_of(task, history(FLAT, train_loss=0.1, val_loss=0.9), "val/accuracy", 20)
    assert "0.1000" in warning and "0.9000" in warning and "memorises" in warning


def test_run_scored_at_its_last_epoch_by_choice_gets_no_advice_on_the_best(task: TaskModule) -> None:
    assert warnings_of(task, history(RISING), None, 100) == []


@pytest.mark.parametrize(
    ("options", "total", "expected"),
    [
        ({"warmup_steps": 200}, 150, "200 of 150 steps"),
        ({"warmup_steps": 15}, 150, None),
        ({"warmup_share": 0.3}, 100, "30 of 100 steps"),
        ({"warmup_steps": 200, "max_steps": 100}, 1000, None),  # shortened: the warm-up takes at most a tenth
    ],
)
def test_warmup_of_more_than_a_tenth_is_a_fault(options: dict[str, float], total: int, expected: str | None) -> None:
    fault = OptimOptions(interval="step", **options).warmup_fault(total)  # type: ignore[arg-type]
    assert fault is None if expected is None else fault is not None and expected in fault


def test_summary_and_terminal_have_the_warnings(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run(small_config("optim.warmup_steps=1000"), tmp_path / "run")
    recorded = read_summary(tmp_path / "run")["warnings"]
    assert any("the warm-up takes 1,000 of 4 steps" in warning for warning in recorded)
    assert caplog.text.count("WARNING: the warm-up takes 1,000 of 4 steps") == 2  # at the start and at the end
