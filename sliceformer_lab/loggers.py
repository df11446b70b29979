"""Where metrics go beside the terminal: CSV always, Weights & Biases by choice."""

from __future__ import annotations

import netrc
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
from pytorch_lightning.loggers import CSVLogger, WandbLogger

SERVER = "api.wandb.ai"


def csv_logger(folder: Path) -> CSVLogger:
    """Metrics in FOLDER/csv/version_N/metrics.csv; each start of the run, also after `resume`, is a version."""
    return CSVLogger(folder, name="csv")


def read_metrics(folder: Path) -> pd.DataFrame:
    """All metrics of a run, one row per logging step, the starts of a resumed run one after the other."""
    files = sorted((folder / "csv").glob("version_*/metrics.csv"), key=lambda f: int(f.parent.name.split("_")[1]))
    tables = [pd.read_csv(file) for file in files if file.stat().st_size]
    return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame()


def wandb_logger(
    config: Mapping[str, Any],
    folder: Path,
    *,
    project: str = "sliceformer_lab",
    entity: str | None = None,
    offline: bool | None = None,
    group: str | None = None,
) -> WandbLogger:
    """A W&B run named as its folder; offline by itself without a key or network. Keys never come from a config."""
    if offline is None:
        offline = not (_has_key() and _server_answers())
    names = config["names"]
    sweep = folder.parent.name if folder.parent.parent.name == "sweeps" else None
    logger = WandbLogger(
        project=project,
        entity=entity,
        offline=offline,
        save_dir=str(folder),
        name=run_name(names, folder),
        group=group or sweep or names["task"],
        job_type=config["mode"],
        tags=[names["task"], names["attention"], *config["tags"]],
        config=dict(config),
    )
    run = logger.experiment
    run.define_metric("trainer/global_step")
    run.define_metric("*", step_metric="trainer/global_step")
    run.define_metric("val/accuracy", summary="max", step_metric="trainer/global_step")
    return logger


def run_name(names: Mapping[str, Any], folder: Path) -> str:
    """The one name of a run, for folder, dashboard and tables."""
    return f"{names['task']}/{names['attention']}/{folder.name}"


def sync_command(folder: Path) -> str | None:
    """What uploads an offline W&B run later; None if there is none."""
    runs = sorted((folder / "wandb").glob("offline-run-*"))
    return f"wandb sync {runs[-1]}" if runs else None


def _has_key() -> bool:
    if os.environ.get("WANDB_API_KEY"):
        return True
    try:
        return netrc.netrc().authenticators(SERVER) is not None
    except (OSError, netrc.NetrcParseError):
        return False


def _server_answers() -> bool:
    try:
        with socket.create_connection((SERVER, 443), timeout=3):
            return True
    except OSError:
        return False
