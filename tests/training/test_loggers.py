"""TensorBoard and MLflow beside the CSV files."""

from __future__ import annotations

from pathlib import Path

import pytest
from pytorch_lightning.loggers import CSVLogger
from support.runs import small_config

from sliceformer_lab.errors import ConfigError
from sliceformer_lab.training.loggers import PrefixedLogger
from sliceformer_lab.training.run import run


def test_tensorboard_gets_the_metrics_of_the_csv_file(tmp_path: Path) -> None:
    event_accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    run(small_config("logger=tensorboard", "reference=null"), tmp_path / "run")
    events = event_accumulator.EventAccumulator(str(tmp_path / "run" / "tensorboard")).Reload()
    assert {"train/loss", "val/accuracy"} <= set(events.Tags()["scalars"])
    assert len(events.Scalars("val/accuracy")) == 2  # epochs


def test_mlflow_gets_metrics_and_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tracking = pytest.importorskip("mlflow.tracking")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    uri = f"file:{tmp_path / 'mlruns'}"
    run(small_config("logger=mlflow", f"logger.tracking_uri={uri}", "reference=null"), tmp_path / "run")
    client = tracking.MlflowClient(uri)
    experiment = client.get_experiment_by_name("sliceformer_lab")
    (found,) = client.search_runs([experiment.experiment_id])
    assert "val/accuracy" in found.data.metrics and found.data.params["seed"] == "0"
    assert found.data.tags["attention"] == "mha"


def test_mlflow_without_a_server_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    with pytest.raises(ConfigError, match="nothing says where to log"):
        run(small_config("logger=mlflow"), tmp_path / "run")


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
