"""Stops a run where going on would spoil it: a loss that is not a number, or a signal to end."""

from __future__ import annotations

import signal
from types import FrameType
from typing import Any

from pytorch_lightning import Callback, LightningModule, Trainer
from torch import Tensor

from sliceformer_lab.errors import DivergedError
from sliceformer_lab.training.context import RunContext
from sliceformer_lab.training.signals import SIGNALS, interrupted


class Guard(Callback):
    """Turns a NaN or infinite loss, and SIGINT or SIGTERM during training, into errors that a run records.

    A signal is acted on after the batch in hand, so that weights and optimiser agree; a second one at once. Lightning
    by itself calls a NaN run a success, and at SIGTERM ends with exit code 0 and no checkpoint. All processes of a
    distributed run agree before one raises, or the others would wait for it for ever.
    """

    def __init__(self, context: RunContext) -> None:
        self._folder = context.folder
        self._received: int | None = None

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Take the signals over from Lightning, which restores the earlier handlers when the fit ends."""
        self._received = None
        for number in SIGNALS:
            signal.signal(number, self._receive)

    def on_before_backward(self, trainer: Trainer, pl_module: LightningModule, loss: Tensor) -> None:
        """Raises DivergedError before a bad loss can reach the weights."""
        if _any_process(trainer, not loss.isfinite()):
            raise DivergedError(
                f"the training loss became {loss.item()} in epoch {trainer.current_epoch}, step {trainer.global_step}; "
                "the best checkpoint so far is kept; try a lower optim.lr, a warm-up or optim.clip_norm"
            )

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Raises InterruptedRunError if a signal came during the batch."""
        self._save_and_stop_if_asked(trainer)

    def on_validation_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """The same during validation."""
        self._save_and_stop_if_asked(trainer)

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Raises InterruptedRunError if a signal came after the last batch, when `last.ckpt` was written."""
        if _any_process(trainer, self._received is not None):
            raise interrupted(self._received or signal.SIGTERM, f" before scoring; go on with resume={self._folder}")

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if self._received is not None:
            raise interrupted(number, " twice")
        self._received = number

    def _save_and_stop_if_asked(self, trainer: Trainer) -> None:
        if not _any_process(trainer, self._received is not None):
            return
        if trainer.checkpoint_callbacks:
            trainer.save_checkpoint(self._folder / "checkpoints" / "interrupted.ckpt")
        raise interrupted(
            self._received or signal.SIGTERM,
            f" in epoch {trainer.current_epoch}; go on from the last finished epoch with resume={self._folder}",
        )


def _any_process(trainer: Trainer, here: Tensor | bool) -> bool:
    """Whether something holds in one process at least."""
    return bool(trainer.strategy.reduce_boolean_decision(bool(here), all=False))
