"""How runs end on errors and signals: message, exit code and kept files."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from filelock import FileLock
from pytorch_lightning import LightningModule
from support.plans import run
from support.run_folders import read_summary
from support.runs import small_config
from torch import Tensor

from sliceformer_lab.callbacks.guard import Guard
from sliceformer_lab.callbacks.throughput import Throughput
from sliceformer_lab.data.images.small_images import Digits
from sliceformer_lab.errors import DivergedError, Interrupted, RunFolderError
from sliceformer_lab.measures import plots
from sliceformer_lab.runs.folder import read_checkpoint
from sliceformer_lab.runs.processes import STOP_SIGNALS
from sliceformer_lab.tasks.image import ImageClassification
from sliceformer_lab.training.fitting import AtomicCheckpointIO
from sliceformer_lab.training.results import references
from sliceformer_lab.training.results.summary import Summary

PHASES: dict[str, tuple[Any, str]] = {
    "preparing": (Digits, "prepare_data"),
    "training": (ImageClassification, "training_step"),
    "validating": (ImageClassification, "validation_step"),
    "ending": (ImageClassification, "on_train_end"),
    "testing": (ImageClassification, "test_step"),
    "drawing": (plots, "plot_curves"),
    "fitting a reference": (references, "_fit_model"),
}


def send(number: int) -> None:
    os.kill(os.getpid(), number)


def test_a_folder_of_a_live_process_is_refused(tmp_path: Path) -> None:
    other = FileLock(tmp_path / ".lock")  # not the lock of this process, which may lock a folder again
    with other, pytest.raises(RunFolderError, match="held by another live process"):
        run(small_config(), tmp_path)
    assert not (tmp_path / "summary.json").exists()


@pytest.mark.parametrize("is_signalled", [False, True])
def test_signal_while_a_failure_is_recorded_does_not_leave_the_run_running(
    is_signalled: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    update = Summary.update

    def signalling(self: Summary, **facts: object) -> None:
        if facts.get("status") == "failed" and is_signalled:
            send(signal.SIGTERM)
        update(self, **facts)

    def fail(*_: Any) -> None:
        raise RuntimeError("out of luck")

    monkeypatch.setattr(Summary, "update", signalling)
    monkeypatch.setattr(Throughput, "on_train_epoch_end", fail)
    with pytest.raises(RuntimeError):
        run(small_config(), tmp_path)
    summary = read_summary(tmp_path)
    assert (summary["status"], summary["error"]) == ("failed", "RuntimeError: out of luck")


def test_bad_loss_stops_before_the_optimizer_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loss = ImageClassification.loss
    weights: list[Tensor] = []

    def bad(self: ImageClassification, output: Tensor, target: Tensor) -> Tensor:
        value = loss(self, output, target)
        if not self.training or self.trainer.current_epoch < 1:
            return value
        weights.append(self.head.weight.detach().clone())
        return value * float("nan")

    models: list[LightningModule] = []
    monkeypatch.setattr(ImageClassification, "loss", bad)
    monkeypatch.setattr(Guard, "on_exception", lambda self, trainer, module, error: models.append(module))
    with pytest.raises(DivergedError, match="loss became nan in epoch 2, step 2"):
        run(small_config(), tmp_path)
    assert read_summary(tmp_path)["status"] == "diverged"
    assert read_checkpoint(tmp_path / "checkpoints" / "best.ckpt")["epoch"] == 0
    torch.testing.assert_close(models[0].head.weight, weights[0], rtol=0, atol=0)


@pytest.mark.parametrize("step", [0, 1], ids=["before another step", "in the last step of an epoch"])
def test_on_a_gpu_a_bad_loss_is_read_a_step_later_and_the_run_ends_with_its_place(
    step: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loss, start = ImageClassification.loss, 2 + step

    def bad(self: ImageClassification, output: Tensor, target: Tensor) -> Tensor:
        value = loss(self, output, target)
        return value * float("nan") if self.training and self.trainer.global_step == start else value

    monkeypatch.setattr(Guard, "late_devices", ("cpu",))
    monkeypatch.setattr(ImageClassification, "loss", bad)
    with pytest.raises(DivergedError, match=f"loss became nan in epoch 2, step {start}"):
        run(small_config(), tmp_path)
    best = read_checkpoint(tmp_path / "checkpoints" / "best.ckpt")
    assert best["epoch"] == 0
    assert all(bool(w.isfinite().all()) for w in best["state_dict"].values())


@pytest.mark.parametrize("phase", PHASES)
def test_signal_ends_a_run_in_every_phase(phase: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, method = PHASES[phase]
    original = getattr(owner, method)
    handlers = {s: signal.getsignal(s) for s in STOP_SIGNALS}

    def signalling(*args: Any) -> Any:
        send(signal.SIGTERM)
        return original(*args)

    monkeypatch.setattr(owner, method, signalling)
    with pytest.raises(Interrupted, match="stopped by SIGTERM") as stopped:
        run(small_config("pictures=true", "reference=auto", f"paths.data={tmp_path / 'data'}"), tmp_path / "run")
    assert stopped.value.exit_code == 128 + signal.SIGTERM
    assert read_summary(tmp_path / "run")["status"] == "interrupted"
    assert {s: signal.getsignal(s) for s in STOP_SIGNALS} == handlers
    if phase not in ("preparing", "validating"):
        assert list((tmp_path / "run" / "checkpoints").glob("*.ckpt"))
    assert ("before scoring" in str(stopped.value)) == (phase == "ending")


def test_second_signal_ends_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def impatient(self: ImageClassification, batch: Any, batch_idx: int) -> Tensor:
        send(signal.SIGINT)
        send(signal.SIGINT)  # at the same time: a scheduler that sends it twice
        time.sleep(0.6)
        send(signal.SIGINT)
        raise AssertionError("still running")

    monkeypatch.setattr(ImageClassification, "training_step", impatient)
    with pytest.raises(Interrupted, match="SIGINT twice"):
        run(small_config(), tmp_path)


def test_failing_write_keeps_the_old_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "last.ckpt"
    AtomicCheckpointIO().save_checkpoint({"state_dict": {"a": torch.zeros(2)}}, file)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        AtomicCheckpointIO().save_checkpoint({"state_dict": {"a": torch.ones(2)}}, file)
    torch.testing.assert_close(read_checkpoint(file)["state_dict"], {"a": torch.zeros(2)})
    assert list(tmp_path.iterdir()) == [file]
