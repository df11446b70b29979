"""Observers of a run that fail: one warning each, and the run ends as without them."""

from __future__ import annotations

import resource
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from pytorch_lightning.loggers import TensorBoardLogger
from support.plans import plan_of, run
from support.run_folders import read_summary
from support.runs import small_config

from sliceformer_lab.callbacks.record_spectrum import Spectrum
from sliceformer_lab.measures import plots
from sliceformer_lab.runs.folder import read_checkpoint
from sliceformer_lab.training.context import RunContext
from sliceformer_lab.training.fitting import AtomicCheckpointIO, build_loggers
from sliceformer_lab.training.results.metrics_file import MetricsFile


def test_failing_observers_are_a_warning_each_and_change_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("out of luck\nand more lines")

    monkeypatch.setattr(Spectrum, "_record_of", fail)
    monkeypatch.setattr(plots, "plot_curves", fail)
    monkeypatch.setattr(TensorBoardLogger, "save", fail)
    options = ("callbacks=default", "pictures=true", "logger=tensorboard", "reference=null", "optim.epochs=1")
    run(small_config(*options), tmp_path / "run")
    assert read_summary(tmp_path / "run")["status"] == "ok"
    warnings = [record.message for record in caplog.records if "the run goes on without it" in record.message]
    assert sorted(warning.partition(" stopped (RuntimeError: out of luck);")[0] for warning in warnings) == [
        "curves.png",
        "the logger TensorBoardLogger",
        "the spectrum",
    ]


def test_a_logger_that_cannot_start_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise ConnectionError("no server")

    monkeypatch.setattr(TensorBoardLogger, "log_hyperparams", fail)
    context = RunContext(folder=tmp_path, seed=0, monitor=None, monitor_mode="max")
    assert len(build_loggers(plan_of(small_config("logger=tensorboard")), context)) == 1
    assert "tensorboard_logger stopped (ConnectionError: no server); the run goes on without it" in caplog.text


@contextmanager
def room_for(size: int) -> Iterator[None]:
    """Lets this process write files of at most `size` bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_rows_of_metrics_that_cannot_be_written_are_written_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    logger, file = MetricsFile(tmp_path), tmp_path / "csv" / "version_0" / "metrics.csv"
    logger.log_metrics({"loss": 0.5}, step=0)
    logger.save()
    before = file.read_bytes()
    with room_for(len(before) + 3):
        for step in (1, 2):
            logger.log_metrics({"loss": 0.25}, step=step)
            logger.save()
            assert file.read_bytes() == before, "half a row is no row"
        logger.log_metrics({"loss": 0.125, "accuracy": 1.0}, step=3)  # a new column: the whole file is written again
        logger.save()
        assert file.read_bytes() == before
    logger.log_metrics({"loss": 0.0625}, step=4)
    logger.save()
    table = pd.read_csv(file)
    assert table["step"].tolist() == [0, 1, 2, 3, 4] and table["accuracy"].notna().sum() == 1
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_checkpoints_do_not_pass_through_the_folder_for_temporary_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    AtomicCheckpointIO().save_checkpoint({"state_dict": {"a": torch.ones(2)}}, tmp_path / "new" / "last.ckpt")
    assert read_checkpoint(tmp_path / "new" / "last.ckpt")["state_dict"]["a"].tolist() == [1, 1]
