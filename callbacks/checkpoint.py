"""Which checkpoints a run keeps."""

from __future__ import annotations

from typing import Any

from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.callbacks import Checkpoint

from sliceformer_lab.errors import ConfigError
from sliceformer_lab.training.context import RunContext


class Checkpoints(Checkpoint):
    """After every epoch `checkpoints/last.ckpt`, before it `best.ckpt` where the monitored metric was best so far.

    In this order the last checkpoint knows the best score, so that a resumed run never replaces the best weights by
    worse ones. Lightning's ModelCheckpoint writes the last one only where the best has changed, and forgets the best
    score if the folder was moved.
    """

    def __init__(self, context: RunContext) -> None:
        self._folder = context.folder / "checkpoints"
        self._monitor = context.monitor
        self._sign = 1.0 if context.monitor_mode == "max" else -1.0
        self._best: float | None = None  # sign * metric

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Raises ConfigError if nothing will ever be monitored."""
        if self._monitor is not None and not sum(trainer.num_val_batches):
            raise ConfigError(
                f"{self._monitor} picks the best epoch, but there are no validation examples; choose selection=last, "
                "selection=best_test, or a data.val_fraction above 0"
            )

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Save, unless this is a dry run."""
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
        """The best score so far."""
        return {"best": self._best}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from that score."""
        self._best = state_dict["best"]
