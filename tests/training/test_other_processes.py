"""The first error of a distributed run, whichever of its processes raises it."""

from __future__ import annotations

import multiprocessing
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import pytorch_lightning as pl

from sliceformer_lab.data import loader
from sliceformer_lab.errors import LabError
from sliceformer_lab.training.processes import other_processes
from sliceformer_lab.training.processes.other_processes import OwnProcesses, child_processes, record_first_error


@pytest.fixture
def trainer() -> pl.Trainer:
    return pl.Trainer(
        accelerator="cpu", devices=2, strategy="ddp", plugins=[OwnProcesses()], logger=False, enable_checkpointing=False
    )


@pytest.fixture
def child(monkeypatch: pytest.MonkeyPatch) -> subprocess.Popen[bytes]:
    """The other process, which does nothing but wait."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    monkeypatch.setattr(other_processes, "start_child", lambda *_: process)
    return process


@pytest.mark.parametrize(
    ("process", "kind", "message"), [(1, LabError, "process 2 of 2: ValueError: "), (0, ValueError, "")]
)
def test_the_first_error_is_raised_and_not_its_consequence_and_that_of_this_process_as_it_is(
    process: int,
    kind: type[Exception],
    message: str,
    trainer: pl.Trainer,
    child: subprocess.Popen[bytes],
    tmp_path: Path,
) -> None:
    first, consequence = ValueError("bad luck"), RuntimeError("connection closed by peer")
    with pytest.raises(kind, match=f"^{message}bad luck$"), child_processes(trainer, tmp_path):
        record_first_error(tmp_path, process, first)
        record_first_error(tmp_path, 1 - process, consequence)
        raise consequence if process else first
    assert child.poll() == -signal.SIGKILL and not list(tmp_path.iterdir())


def test_a_killed_process_is_named(trainer: pl.Trainer, child: subprocess.Popen[bytes], tmp_path: Path) -> None:
    with (
        pytest.raises(LabError, match=r"^process 2 of 2 was ended by SIGKILL.*memory"),
        child_processes(trainer, tmp_path),
    ):
        child.kill()
        record_first_error(tmp_path, 0, RuntimeError("connection closed by peer"))
        raise RuntimeError("connection closed by peer")


def test_a_data_worker_that_hangs_does_not_keep_the_program_from_ending() -> None:
    worker = multiprocessing.get_context("fork").Process(target=hang, daemon=True)
    worker.start()
    time.sleep(0.2)
    loader._kill_workers()
    worker.join(5)
    assert worker.exitcode == -signal.SIGKILL


def hang() -> None:
    loader.start_worker(0)
    time.sleep(60)
