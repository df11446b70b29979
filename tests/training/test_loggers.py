"""TensorBoard and Trackio beside the CSV files."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image
from pytorch_lightning.loggers import CSVLogger
from support.plans import run
from support.run_folders import read_summary
from support.runs import small_config

from sliceformer_lab.training.results.loggers import PrefixedLogger


def test_tensorboard_gets_the_metrics_the_results_and_the_pictures_of_a_run(tmp_path: Path) -> None:
    event_accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    folder = tmp_path / "run"
    run(small_config("logger=tensorboard", "pictures=true"), folder)
    events = event_accumulator.EventAccumulator(str(folder / "tensorboard")).Reload()
    summary = read_summary(folder)
    assert "train/loss" in events.Tags()["scalars"] and len(events.Scalars("val/accuracy")) == 2  # epochs
    for name in ("test/accuracy", "test/loss"):
        (score,) = events.Scalars(name)
        assert (score.step, score.value) == (summary["best"]["step"], pytest.approx(summary["metrics"][name]))
    assert "parameters" in events.Tags()["scalars"]
    for name in ("confusion", "curves", "mistakes"):
        (picture,) = events.Images(f"pictures/{name}")
        with Image.open(folder / f"{name}.png") as drawn:
            assert (picture.width, picture.height) == drawn.size


def test_trackio_gets_metrics_options_results_and_pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))  # read at the import
    storage = pytest.importorskip("trackio.sqlite_storage").SQLiteStorage
    run(small_config("logger=trackio", "reference=null", "pictures=true"), tmp_path / "run")
    (name,) = storage.get_runs("sliceformer_lab")
    rows, config = storage.get_logs("sliceformer_lab", name), storage.get_run_config("sliceformer_lab", name)
    assert name.endswith("/mha/run") and config["attention"] == "mha" and config["optim"]["epochs"] == 2
    assert [row["epoch"] for row in rows if "val/accuracy" in row] == [0, 1]
    metrics = read_summary(tmp_path / "run")["metrics"]
    assert [row["test/accuracy"] for row in rows if "test/accuracy" in row] == [metrics["test/accuracy"]]
    assert {"pictures/curves", "pictures/confusion"} <= {key for row in rows for key in row}


def test_a_pretraining_logs_under_its_own_names_and_leaves_the_logger_open(tmp_path: Path) -> None:
    other = CSVLogger(tmp_path)
    logger = PrefixedLogger(other)
    logger.log_metrics({"val/r2": 0.5}, step=3)
    logger.finalize("success")
    assert not list(tmp_path.rglob("metrics.csv"))
    other.log_metrics({"val/accuracy": 0.9}, step=1)
    other.save()
    (file,) = tmp_path.rglob("metrics.csv")
    assert "pretrain/val/r2" in file.read_text() and "val/accuracy" in file.read_text()
