"""schedule=plateau lowers the rate after validations without progress, also across a resume."""

from __future__ import annotations

from pathlib import Path

from support.plans import run
from support.runs import assert_equal_runs, small_config, stopped_at
from torch import nn

from sliceformer_lab.__main__ import main
from sliceformer_lab.runs.folder import read_checkpoint
from sliceformer_lab.training.optim import OptimOptions

PLATEAU = (
    *("optim.schedule=plateau", "optim.plateau_patience=0", "optim.min_lr=0.01", "optim.lr=0.2"),
    *("optim.warmup_steps=0", "optim.epochs=4"),
)


def test_rate_is_halved_after_the_patience_and_not_below_the_lowest() -> None:
    options = OptimOptions(lr=0.4, min_lr=0.15, schedule="plateau", plateau_patience=2)
    optimizer = options.build_optimizer(nn.Linear(2, 2))
    schedule = options.build_schedule(optimizer, 100)
    rates = []
    for loss in (3.0, 2.0, 2.0, 2.1, 2.2, 1.0, 1.0, 1.0, 1.0, 1.0):
        schedule.step(loss)
        rates.append(optimizer.param_groups[0]["lr"])
    assert rates == [0.4, 0.4, 0.4, 0.4, 0.2, 0.2, 0.2, 0.2, 0.15, 0.15]


def test_a_resumed_run_has_the_rates_of_an_uninterrupted_one(tmp_path: Path) -> None:
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    run(small_config(*PLATEAU), whole)
    rate = read_checkpoint(whole / "checkpoints" / "last.ckpt")["optimizer_states"][0]["param_groups"][0]["lr"]
    assert rate < 0.2  # this rate is too high to learn with, so some epoch brought no progress
    with stopped_at(2):
        run(small_config(*PLATEAU), stopped)
    assert main([f"resume={stopped}"]) == 0
    assert_equal_runs(whole, stopped)
