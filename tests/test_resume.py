"""A stopped run goes on as if it had never stopped; its folder can be scored and opened again."""

from __future__ import annotations

import json
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import official_files
import pytest
import torch
from pytorch_lightning import LightningModule, Trainer
from runs import assert_equal_runs, small_config

from callbacks.guard import Guard
from sliceformer_lab.checkpoint_io import AtomicCheckpointIO
from sliceformer_lab.cli import main
from sliceformer_lab.errors import RunFolderError
from sliceformer_lab.record import load_run, read_checkpoint, read_summary
from sliceformer_lab.run import run

NOISY = (  # everything that draws random numbers: dropout, drop path, Mixup, augmentation, workers, shuffling
    *("task=cifar10", "data.verify=false", "data.limit_train=null", "data.num_workers=2", "data.batch_size=16"),
    *("encoder.dropout=0.1", "encoder.embed_dropout=0.1", "encoder.drop_path=0.2", "task.mixup=0.4"),
    *("optim.epochs=4", "optim.lr=0.001", "optim.interval=step", "optim.warmup_steps=3", "trainer.log_every_n_steps=1"),
)


class StoppedError(Exception):
    """What the tests stop a run with."""


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("cifar10")
    official_files.cifar10(root)
    return root


@pytest.fixture(scope="module")
def never_stopped(pictures: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "never_stopped"
    run(small_config(*NOISY, f"data.root={pictures}"), folder)
    return folder


def stop_in(monkeypatch: pytest.MonkeyPatch, hook: str, when: Callable[[Trainer, tuple[Any, ...]], bool]) -> None:
    """Make a run raise StoppedError in a hook of its Guard."""

    def stopping(self: Guard, trainer: Trainer, module: LightningModule, *args: Any) -> None:
        if when(trainer, args):
            raise StoppedError

    monkeypatch.setattr(Guard, hook, stopping, raising=False)


@pytest.mark.parametrize("batch", [0, 2])
def test_resumed_run_equals_one_never_stopped(
    batch: int, never_stopped: Path, pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "stopped"
    with monkeypatch.context() as patch:
        stop_in(patch, "on_train_batch_start", lambda t, args: t.current_epoch == 2 and args[1] == batch)
        with pytest.raises(StoppedError):
            run(small_config(*NOISY, f"data.root={pictures}"), folder)
    assert read_summary(folder)["status"] == "failed"
    assert main([f"resume={folder}"]) == 0
    assert_equal_runs(never_stopped, folder)
