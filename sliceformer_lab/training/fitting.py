"""Lightning's trainer as a run configures it, with its loggers and callbacks; and one fit, new or continued."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from lightning_fabric.utilities.exceptions import MisconfigurationException
from pytorch_lightning.callbacks import (
    BatchSizeFinder,
    GradientAccumulationScheduler,
    LearningRateFinder,
    ProgressBar,
)
from pytorch_lightning.loggers import Logger
from pytorch_lightning.plugins.io import TorchCheckpointIO

from sliceformer_lab.config.checked import RunPlan
from sliceformer_lab.config.schema import CheckedNode, ConfigError, positional_types
from sliceformer_lab.errors import LabError
from sliceformer_lab.runs.files import whole_bytes
from sliceformer_lab.runs.folder import FORMAT, load_weights
from sliceformer_lab.runs.processes import is_first_process
from sliceformer_lab.runs.score_options import identity_of
from sliceformer_lab.training.context import RunContext
from sliceformer_lab.training.interfaces import DataModule, TaskModule
from sliceformer_lab.training.pretraining.pretrained_weights import Pretrained
from sliceformer_lab.training.processes.other_processes import OwnProcesses
from sliceformer_lab.training.results.loggers import WatchingLogger
from sliceformer_lab.training.results.metrics_file import MetricsFile
from sliceformer_lab.training.results.observers import warn_of
from sliceformer_lab.training.results.summary import RecordPlace, Summary

# They change options while the run trains, so its record, its number of steps and the time left would be wrong.
OPTIONS_CHANGED_BY: dict[type[pl.Callback], str] = {
    BatchSizeFinder: "data.batch_size",
    GradientAccumulationScheduler: "optim.accumulate",
    LearningRateFinder: "optim.lr",
}


def fit(
    trainer: pl.Trainer, task: TaskModule, data: DataModule, last: Path | None, pretrained: Pretrained | None = None
) -> None:
    """Trains a new model, from pretrained weights if there are any, or continues from `last`.

    Raises RunFolderError if a checkpoint cannot be used, and ConfigError for limits that leave no batch.
    """
    if last is None:
        task.initialise()
        if pretrained is not None:
            pretrained.load_into(task)
    else:
        load_weights(task, last)  # Lightning loads it too, but reports a damaged or foreign file with a traceback
    try:
        trainer.fit(task, datamodule=data, ckpt_path=last, weights_only=True)
    except MisconfigurationException as error:
        raise ConfigError(f"trainer: {error}") from error


def run_context(plan: RunPlan, folder: Path, task: TaskModule) -> RunContext:
    """The facts of a run that callbacks and loggers receive."""
    split = {"best_val": "val", "best_test": "test_curve", "last": None}[plan.selection]
    monitor = f"{split}/{task.monitor}" if split else None
    return RunContext(
        folder=folder,
        seed=plan.seed,
        monitor=monitor,
        monitor_mode=task.monitor_mode,
        identity=identity_of(plan.plain),
    )


def build_loggers(plan: RunPlan, context: RunContext) -> list[Logger]:
    """The CSV logger, and the one of the configuration if there is one; none in the other processes of a run."""
    if not is_first_process():
        return []
    loggers: list[Logger] = [MetricsFile(context.folder)]
    if plan.logger is not None:
        try:
            loggers.append(WatchingLogger(plan.logger.build(context, plan)))
        except LabError:
            raise
        except Exception as error:
            warn_of(plan.logger.target.__name__, error)
    return loggers


def build_trainer(
    plan: RunPlan, context: RunContext, task: TaskModule, loggers: list[Logger], summary: Summary | None = None
) -> pl.Trainer:
    """Lightning's trainer with the configured callbacks. Raises ConfigError for options that it refuses."""
    nodes = plan.callbacks.values()
    callbacks: list[pl.Callback] = [node.build(*([context] if _takes_context(node) else [])) for node in nodes]
    for name, callback in zip(plan.callbacks, callbacks, strict=True):
        for kind, option in OPTIONS_CHANGED_BY.items():
            if isinstance(callback, kind):
                raise ConfigError(
                    f"callbacks.{name}: {kind.__name__} changes {option} in training, and the run would be recorded "
                    f"with another one; remove it and set {option}"
                )
    if summary is not None:
        callbacks.append(RecordPlace(summary))
    optim = task.optim
    fixed = {
        "default_root_dir": context.folder,
        "max_epochs": optim.epochs or optim.steps,  # the task stops after its steps; max_steps would break resuming
        "accumulate_grad_batches": optim.accumulate,
        "gradient_clip_val": optim.clip_norm,
        "callbacks": callbacks,
        "logger": loggers,
        "plugins": [AtomicCheckpointIO(), OwnProcesses()],
        "num_sanity_val_steps": 0,
        "enable_model_summary": False,
        "enable_progress_bar": any(isinstance(callback, ProgressBar) for callback in callbacks),
        "use_distributed_sampler": False,  # our loaders split the examples between processes
    }
    try:
        trainer: pl.Trainer = plan.trainer.node.build(fixed)
    except (TypeError, ValueError, MisconfigurationException) as error:
        raise ConfigError(f"trainer: {error}") from error
    return trainer


class AtomicCheckpointIO(TorchCheckpointIO):
    """Replaces a checkpoint only once the new one is complete, so that a full disk or a kill keeps the old one."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any | None = None) -> None:
        """Writes a temporary file, flushes it to the disk and renames it; removes it if that fails.

        The file is written in its folder: Lightning's own way passes through TMPDIR, which may be smaller.
        """
        del storage_options
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole_bytes(path) as file:  # in a file on the disk, torch.save would hide the error of a full one
            torch.save(checkpoint | {"format": FORMAT}, file)


def _takes_context(callback: CheckedNode) -> bool:
    """Whether a callback has a RunContext as its positional argument, as most of ours; Lightning's own have none."""
    return RunContext in positional_types(callback.target).values()
