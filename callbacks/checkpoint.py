"""Saves the best and the last checkpoint of a run."""

from __future__ import annotations

import math
import time
from typing import Any, cast

from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.callbacks import Checkpoint

from sliceformer_lab.config.option_types import NonNegative
from sliceformer_lab.errors import ConfigError, DataError
from sliceformer_lab.runs.folder import IDENTITY_KEY, LAST, PREVIOUS
from sliceformer_lab.training.context import RunContext
from sliceformer_lab.training.interfaces import TaskModule
from sliceformer_lab.training.processes.other_processes import any_process
from sliceformer_lab.training.processes.signals import first_signal, time_to_save


class Checkpoints(Checkpoint):
    """Saves `checkpoints/best.ckpt` when the monitored metric improves, then `checkpoints/last.ckpt` every epoch.

    In this order the last checkpoint contains the best score, so a resumed run cannot replace the best weights by
    worse ones. Lightning's ModelCheckpoint saves the last checkpoint only when the best one changes, and loses the
    best score when the folder is moved.

    Within an epoch it saves `last.ckpt` every `every_minutes`, and when a stop signal has arrived. The one
    before is kept as `previous.ckpt`.
    """

    def __init__(self, context: RunContext, *, every_minutes: NonNegative = 10.0) -> None:
        self._folder = context.folder / "checkpoints"
        self._monitor = context.monitor
        self._score = context.score
        self._identity = dict(context.identity)
        self._every_minutes = every_minutes
        self._best: float | None = None  # score
        self._saved = 0.0  # time of the last save

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Raises ConfigError if the monitored metric needs validation examples and there are none."""
        self._saved = time.monotonic()
        if self._monitor is not None and not sum(trainer.num_val_batches):
            raise ConfigError(
                f"{self._monitor} selects the best epoch, but there are no validation examples; choose selection=last, "
                "selection=best_test, or a data.val_fraction above 0"
            )

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Saves the place within the epoch if that is due."""
        if not _can_resume_after(trainer, batch_idx):
            return
        due = time.monotonic() - self._saved >= 60 * self._every_minutes
        if any_process(trainer, due or first_signal() is not None):
            self._save_last(trainer)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Saves the checkpoints, except in a dry run.

        Raises DataError if the monitored metric is undefined in the first epoch: it depends on the examples alone.
        """
        if trainer.fast_dev_run:  # type: ignore[attr-defined]
            return
        if self._monitor is not None:
            score = float(trainer.callback_metrics[self._monitor])
            if self._best is None and math.isnan(score):
                raise DataError(
                    f"{self._monitor} cannot be computed on the validation examples, so it selects no epoch: an AUC "
                    "needs a label that is true of some and false of others, an error a known number; hold out more by "
                    "data.val_fraction, or choose selection=last"
                )
            if self._improved(score):
                trainer.save_checkpoint(self._folder / "best.ckpt")
        self._save_last(trainer)

    def _save_last(self, trainer: Trainer) -> None:
        """Replaces `last.ckpt` once the new one is whole, and writes the metrics that were logged until now."""
        for logger in trainer.loggers:
            logger.save()
        unfinished = self._folder / "next.ckpt"
        with time_to_save():
            trainer.save_checkpoint(unfinished)
            if trainer.is_global_zero:
                last = self._folder / LAST
                if last.exists():
                    last.replace(self._folder / PREVIOUS)
                unfinished.replace(last)
        self._saved = time.monotonic()

    def _improved(self, value: float) -> bool:
        score = self._score(value)
        if self._best is not None and not score > self._best:
            return False
        self._best = score
        return True

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Adds the seed and the options of the run, which `load_weights` compares with those of the run's folder."""
        checkpoint[IDENTITY_KEY] = self._identity

    def state_dict(self) -> dict[str, Any]:
        return {"best": self._best}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._best = state_dict["best"]


def _can_resume_after(trainer: Trainer, batch_idx: int) -> bool:
    """Whether a run that is resumed after this batch equals an uninterrupted one.

    Not while gradients accumulate, which no checkpoint holds. Not after the last batch of an epoch or of the run:
    Lightning would leave out the validation that follows. Not on fixed batches, which are no pass of our loaders.
    """
    if trainer.fast_dev_run or trainer.overfit_batches:  # type: ignore[attr-defined]
        return False
    done, steps = batch_idx + 1, cast(TaskModule, trainer.lightning_module).num_steps
    in_epoch = done % trainer.accumulate_grad_batches == 0 and done < trainer.num_training_batches
    return in_epoch and (steps is None or trainer.global_step < steps)
