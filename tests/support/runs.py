"""Small runs for tests: their configuration, and a comparison of two runs."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from pytorch_lightning import LightningModule, Trainer
from support.plans import run
from support.run_folders import read_summary

from sliceformer_lab.callbacks.guard import Guard
from sliceformer_lab.config.compose import compose_job
from sliceformer_lab.runs.files import write_json
from sliceformer_lab.runs.folder import SUMMARY, read_checkpoint
from sliceformer_lab.training.saved.saved_run import load_run

SMALL = (
    "encoder=tiny",
    "encoder.depth=2",
    "attention=mha",
    "callbacks=minimal",
    "pictures=false",
    "reference=null",
    "data.limit_eval=64",
    "data.limit_train=128",
    "optim.epochs=2",
)
NOISE = ("encoder.dropout=0.1", "encoder.drop_path=0.2", "task.mixup=0.4", "reference=null")  # random numbers
TINY = (
    "encoder=tiny",
    "encoder.depth=2",
    "optim.epochs=1",
    "data.limit_train=64",
    "data.limit_eval=64",
    "callbacks=minimal",
    "pictures=false",
    "reference=null",
)


def last_of_each(words: Iterable[str]) -> list[str]:
    """The words of a command line; a later word replaces an earlier one with the same key."""
    return list({word.partition("=")[0]: word for word in words}.values())


def small_config(*overrides: str) -> dict[str, Any]:
    """The resolved configuration of a run of a second: two epochs of digits, unless `overrides` say otherwise."""
    return deepcopy(_composed(*overrides))


@cache  # composing takes a third of the time of such a run
def _composed(*overrides: str) -> dict[str, Any]:
    return compose_job([*SMALL, *overrides])


class StoppedError(Exception):
    """The error with which the tests stop a run."""


@contextmanager
def stopped_at(
    epoch: int | None, batch: int = 0, *, task: str = "", hook: str = "on_train_batch_start"
) -> Iterator[None]:
    """The run inside is stopped by an error: at the start of a batch (None: of every epoch), or in another hook."""

    def stop(self: Guard, trainer: Trainer, module: LightningModule, *args: Any) -> None:
        is_batch = not args or args[-1] == batch
        if epoch in (None, trainer.current_epoch) and is_batch and task in type(module).__name__:
            raise StoppedError

    with pytest.MonkeyPatch.context() as patch, pytest.raises(StoppedError):
        patch.setattr(Guard, hook, stop, raising=False)
        yield


def mark_interrupted(folder: Path) -> Path:
    """Lets a finished run look as if it was stopped after its last checkpoint."""
    write_json(folder / SUMMARY, read_summary(folder) | {"status": "interrupted"})
    return folder


def run_with_log(config: dict[str, Any], folder: Path, log: Path) -> None:
    """Run in a process of its own, whose output goes to the end of `log`."""
    with log.open("a") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    run(config, folder)


def assert_equal_runs(first: Path, second: Path, *, history: bool = True) -> None:
    """Weights, optimizer, schedule, predictions, metrics and `history` of two runs are bit-equal."""
    one, other = load_run(first), load_run(second)
    for name in ("best", "last"):
        checkpoints = [read_checkpoint(folder / "checkpoints" / f"{name}.ckpt") for folder in (first, second)]
        for part in ("state_dict", "optimizer_states", "epoch", "global_step"):
            torch.testing.assert_close(*(checkpoint[part] for checkpoint in checkpoints), rtol=0, atol=0)
        assert checkpoints[0]["lr_schedulers"] == checkpoints[1]["lr_schedulers"]
    assert one.summary["metrics"] == other.summary["metrics"] and one.summary["best"] == other.summary["best"]
    assert one.predictions.keys() == other.predictions.keys()
    for name, array in one.predictions.items():
        np.testing.assert_array_equal(array, other.predictions[name])
    if not history:
        return
    measured = ["train/samples_per_second", "train/peak_memory_gb"]
    histories = [run.metrics.drop(columns=measured, errors="ignore") for run in (one, other)]
    pd.testing.assert_frame_equal(*histories, check_exact=True, check_like=True)
