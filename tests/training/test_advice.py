"""Warnings of a run, from its recipe and its curves."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from support.plans import build_data, build_task, run
from support.run_folders import read_summary
from support.runs import small_config

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


@pytest.mark.parametrize(
    ("curves", "best_step", "words"),
    [
        (history(FLAT), 20, ()),
        (history(RISING), 100, ("still improving", "0.8000 before", "optim.epochs=20")),
        (history([*[0.9] * 9, 0.901]), 100, ("best epoch is the last",)),
        (history([*RISING[:9], 1.0]), 100, ()),
        (history(FLAT, train_loss=0.1, val_loss=0.9), 20, ("0.1000", "0.9000", "memorises")),
    ],
    ids=["early and well", "still rising", "late without a notable gain", "perfect", "memorised"],
)
def test_curves_that_ask_for_another_recipe_are_warned_of(
    curves: pd.DataFrame, best_step: int, words: tuple[str, ...], task: TaskModule
) -> None:
    found = warnings_of(task, curves, "val/accuracy", best_step)
    assert len(found) == bool(words) and all(word in found[0] for word in words)


@pytest.mark.parametrize(
    ("options", "total", "expected"),
    [
        ({"warmup_steps": 200}, 150, "150 of 150 steps"),
        ({"warmup_steps": 15}, 150, None),
        ({"warmup_share": 0.3}, 100, "30 of 100 steps"),
        ({"warmup_steps": 200, "max_steps": 100}, 1000, None),  # shortened: the warm-up takes at most a tenth
    ],
)
def test_warmup_of_more_than_a_tenth_is_a_fault(options: dict[str, float], total: int, expected: str | None) -> None:
    fault = OptimOptions(interval="step", **options).warmup_fault(total)
    assert fault is None if expected is None else fault is not None and expected in fault


def test_summary_and_terminal_have_the_warnings(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run(small_config("optim.warmup_steps=1000"), tmp_path / "run")
    recorded = read_summary(tmp_path / "run")["warnings"]
    assert any("the warm-up takes 4 of 4 steps" in warning for warning in recorded)
    assert caplog.text.count("WARNING: the warm-up takes 4 of 4 steps") == 2  # at the start and at the end
