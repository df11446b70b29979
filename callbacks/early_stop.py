"""Stops a training whose validation no longer improves."""

from __future__ import annotations

import logging
from typing import Any, cast

from pytorch_lightning import Callback, LightningModule, Trainer

from sliceformer_lab.config.option_types import Fraction
from sliceformer_lab.training.context import RunContext
from sliceformer_lab.training.interfaces import TaskModule

log = logging.getLogger(__name__)


class EarlyStop(Callback):
    """Stops when the monitored metric has not improved for a share of the run's optimizer steps.

    Lightning's EarlyStopping counts validations, so its patience does not fit runs of different lengths. Without a
    monitored metric (selection=last) nothing is stopped.
    """

    def __init__(self, context: RunContext, *, patience_share: Fraction = 0.3) -> None:
        self._monitor, self._score = context.monitor, context.score
        self._patience_share = patience_share
        self._best: float | None = None  # score
        self._best_step = 0
        self._has_stopped = False

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Stops a resumed run again if it was stopped before."""
        trainer.should_stop = trainer.should_stop or self._has_stopped

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Compares the epoch with the best one."""
        if self._monitor is None or self._monitor not in trainer.callback_metrics:
            return
        score = self._score(float(trainer.callback_metrics[self._monitor]))
        if self._best is None or score > self._best:
            self._best, self._best_step = score, trainer.global_step
        self._stop_without_improvement(trainer)

    def _stop_without_improvement(self, trainer: Trainer) -> None:
        total = cast(TaskModule, trainer.lightning_module).num_steps
        waited = trainer.global_step - self._best_step
        if self._best is None or total is None or trainer.global_step >= total or waited < self._patience_share * total:
            return
        trainer.should_stop = self._has_stopped = True
        if trainer.is_global_zero:
            log.info(
                f"stopped after {trainer.global_step:,} of {total:,} steps: {self._monitor} has not improved for "
                f"{waited:,} steps (callbacks.early_stop.patience_share={self._patience_share})"
            )

    def state_dict(self) -> dict[str, Any]:
        """The best score so far, its step, and whether the run was stopped, for the checkpoint."""
        return {"best": self._best, "best_step": self._best_step, "has_stopped": self._has_stopped}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restores what `state_dict` holds; older checkpoints do not say whether the run was stopped."""
        self._best, self._best_step = state_dict["best"], state_dict["best_step"]
        self._has_stopped = state_dict.get("has_stopped", False)
