"""Where metrics go beside the terminal: CSV always, Weights & Biases by choice."""

from __future__ import annotations

import netrc
import os
import shlex
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from pytorch_lightning.loggers import CSVLogger, Logger, WandbLogger

from sliceformer_lab.context import RunContext

SERVER = "api.wandb.ai"
STEP = "trainer/global_step"  # the x axis of every metric on W&B


def csv_logger(folder: Path) -> CSVLogger:
    """Metrics in FOLDER/csv/version_N/metrics.csv; each start of the run, also after `resume`, is a version."""
    return CSVLogger(folder, name="csv")


def read_metrics(folder: Path) -> pd.DataFrame:
    """All metrics of a run, one row per logging step. What a resumed run did again is taken from the later start."""
    files = sorted((folder / "csv").glob("version_*/metrics.csv"), key=lambda f: int(f.parent.name.split("_")[1]))
    history = pd.DataFrame()
    for file in files:
        if file.stat().st_size:
            table = pd.read_csv(file)
            kept = history[history["step"] < table["step"].min()] if len(history) else history
            history = pd.concat([kept, table], ignore_index=True)
    return history


def wandb_logger(
    context: RunContext,
    config: Mapping[str, Any],
    *,
    project: str = "sliceformer_lab",
    entity: str | None = None,
    offline: bool | None = None,
    group: str | None = None,
) -> WandbLogger:
    """A W&B run named as its folder; offline by itself without a key or network. Keys never come from a config."""
    import wandb

    if offline is None:
        offline = must_be_offline()
    names, folder = config["names"], context.folder
    sweep = folder.parent.name if folder.parent.parent.name == "sweeps" else None
    run = wandb.init(
        project=project,
        entity=entity,
        mode="offline" if offline else "online",
        dir=str(folder),
        name=run_name(names, folder),
        group=group or sweep or names["task"],
        tags=[names["task"], names["attention"], *config["tags"]],
        config=dict(config),
        settings=wandb.Settings(silent=True),
    )
    run.define_metric(STEP)
    run.define_metric("*", step_metric=STEP)
    if context.monitor is not None:
        run.define_metric(context.monitor, summary=context.monitor_mode, step_metric=STEP)
    return WandbLogger(experiment=run)


def must_be_offline() -> bool:
    """Whether there is no key for the server, or no way to it."""
    return not (_has_key() and _server_answers())


def publish(loggers: Sequence[Logger], pictures: Sequence[Path], summary: Mapping[str, Any]) -> None:
    """Send a run's pictures and its summary's figures to W&B, where it is used."""
    for logger in loggers:
        if isinstance(logger, WandbLogger):
            for picture in pictures:
                logger.log_image(picture.stem, [str(picture)])
            logger.experiment.summary.update(dict(summary))


def close_wandb(failed: bool) -> None:
    """End the open W&B run, so that the next job of a multirun gets its own."""
    if "wandb" in sys.modules:  # else nothing was opened, and the import is slow
        sys.modules["wandb"].finish(exit_code=int(failed))


def run_name(names: Mapping[str, Any], folder: Path) -> str:
    """The one name of a run, for folder, dashboard and tables."""
    return f"{names['task']}/{names['attention']}/{folder.name}"


def sync_command(folder: Path) -> str | None:
    """What uploads the offline W&B runs of a folder later; None if there is none."""
    runs = sorted(str(run) for run in (folder / "wandb").glob("offline-run-*"))
    return f"wandb sync {shlex.join(runs)}" if runs else None


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
