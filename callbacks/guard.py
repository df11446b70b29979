"""Stops a run where going on would spoil it: a loss that is not a number, or a signal to end."""

from __future__ import annotations

import signal
from types import FrameType
from typing import Any

from pytorch_lightning import Callback, LightningModule, Trainer
from torch import Tensor

from sliceformer_lab.context import RunContext
from sliceformer_lab.errors import DivergedError, InterruptedRunError

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Guard(Callback):
    """Turns a NaN or infinite loss and SIGINT or SIGTERM into errors that a run can record.

    A signal is acted on after the batch in hand, so that weights and optimiser agree; a second one at once.
    Lightning ends a run with exit code 0 and no checkpoint on SIGTERM, and calls a NaN run a success.
    """

    def __init__(self, context: RunContext) -> None:
        self._folder = context.folder
        self._received: int | None = None
        self._before: dict[signal.Signals, Any] = {}

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Take the signals over, after Lightning has taken them."""
        self._received = None
        self._before = {number: signal.signal(number, self._receive) for number in SIGNALS}

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Give the signals back."""
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

    def on_before_backward(self, trainer: Trainer, pl_module: LightningModule, loss: Tensor) -> None:
        """Raises DivergedError before a bad loss can reach the weights."""
        if not loss.isfinite():
            raise DivergedError(
                f"the training loss became {loss.item()} in epoch {trainer.current_epoch}, step {trainer.global_step}; "
                "the best checkpoint so far is kept; try a lower optim.lr, a warm-up or optim.clip_norm"
            )

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Raises InterruptedRunError if a signal came during the batch."""
        self._stop_if_asked(trainer)

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
        self._stop_if_asked(trainer)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if self._received is not None:
            raise KeyboardInterrupt
        self._received = number

    def _stop_if_asked(self, trainer: Trainer) -> None:
        if self._received is None:
            return
        if trainer.world_size == 1 and trainer.checkpoint_callbacks:
            trainer.save_checkpoint(self._folder / "checkpoints" / "interrupted.ckpt")
        name = signal.Signals(self._received).name
        raise InterruptedRunError(
            f"stopped by {name} in epoch {trainer.current_epoch}; "
            f"go on from the last finished epoch with resume={self._folder}",
            self._received,
        )
