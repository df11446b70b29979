"""Saves the best and the last checkpoint of a run."""

from __future__ import annotations

from typing import Any

from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.callbacks import Checkpoint

from sliceformer_lab.errors import ConfigError
from sliceformer_lab.training.context import RunContext


class Checkpoints(Checkpoint):
    """Saves `checkpoints/best.ckpt` when the monitored metric improves, then `checkpoints/last.ckpt` every epoch.

    In this order the last checkpoint contains the best score, so a resumed run cannot replace the best weights by
    worse ones. Lightning's ModelCheckpoint saves the last checkpoint only when the best one changes, and loses the
    best score when the folder is moved.
    """

    def __init__(self, context: RunContext) -> None:
        self._folder = context.folder / "checkpoints"
        self._monitor = context.monitor
        self._sign = 1.0 if context.monitor_mode == "max" else -1.0
        self._best: float | None = None  # sign * metric

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Raises ConfigError if the monitored metric needs validation examples and there are none."""
        if self._monitor is not None and not sum(trainer.num_val_batches):
            raise ConfigError(
                f"{self._monitor} selects the best epoch, but there are no validation examples; choose selection=last, "
                "selection=best_test, or a data.val_fraction above 0"
            )

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Saves the checkpoints, except in a dry run."""
        if trainer.fast_dev_run:  # type: ignore[attr-defined]
            return
        if self._monitor is not None and self._improved(float(trainer.callback_metrics[self._monitor])):
            trainer.save_checkpoint(self._folder / "best.ckpt")
        trainer.save_checkpoint(self._folder / "last.ckpt")

    def _improved(self, value: float) -> bool:
        score = self._sign * value
        if self._best is not None and not score > self._best:
            return False
        self._best = score
        return True

    def state_dict(self) -> dict[str, Any]:
        """The best score so far, for the checkpoint."""
        return {"best": self._best}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restores the best score."""
        self._best = state_dict["best"]
