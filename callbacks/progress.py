"""Prints an estimate of the run's time, a line per epoch, lines within long epochs, and a bar on a terminal."""

from __future__ import annotations

import sys
import time
from typing import Any, cast

from pytorch_lightning import Callback, LightningModule, Trainer
from pytorch_lightning.callbacks import RichProgressBar
from rich.console import Console

from sliceformer_lab.callbacks.throughput import peak_memory_gb
from sliceformer_lab.training.context import RunContext
from sliceformer_lab.training.interfaces import TaskModule

FIRST, EVERY = 10.0, 60.0  # seconds to the estimate of the run's time, and between lines within an epoch
SHOWN = ("train/loss", "val/", "test_curve/")  # prefixes of the metrics that are printed


class EpochLines(Callback):
    """Prints one line per epoch, or per validation of a run that lasts `steps`, with the remaining time.

    An epoch of more than ten seconds gets its first line then, with an estimate for the run, and one every minute.
    """

    def __init__(self) -> None:
        self._started, self._done_before = 0.0, 0
        self._first_step = 0  # of this start of the run
        self._next_line = 0.0  # when to print within an epoch

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Starts the clock."""
        self._started = time.perf_counter()
        self._next_line, self._first_step = self._started + FIRST, trainer.global_step
        self._done_before = trainer.global_step if _total_steps(trainer) else trainer.current_epoch

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Prints a line within a long epoch: its finished share, the time that the run needs, and its memory."""
        now = time.perf_counter()
        total = cast(TaskModule, trainer.lightning_module).num_steps
        done = trainer.global_step - self._first_step
        if now < self._next_line or not done or not total or not trainer.is_global_zero:
            return
        self._next_line = now + EVERY
        each = (now - self._started) / done
        left = _minutes(each * (total - trainer.global_step))
        line = f"step {trainer.global_step:,}/{total:,}  {each:.2f} s/step, {left} left, {peak_memory_gb():.1f} GB"
        Console(highlight=False, soft_wrap=True).print(line)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Prints the epoch's metrics and the remaining time."""
        if not trainer.is_global_zero:
            return
        self._next_line = max(self._next_line, time.perf_counter() + FIRST)
        steps = _total_steps(trainer)
        done, total = (trainer.global_step, steps) if steps else (trainer.current_epoch + 1, trainer.max_epochs or 0)
        each = (time.perf_counter() - self._started) / (done - self._done_before)
        metrics = sorted(trainer.callback_metrics.items())
        shown = "  ".join(f"{name} {float(value):.4f}" for name, value in metrics if name.startswith(SHOWN))
        unit, pace = ("step", f"{1 / each:.1f} steps/s") if steps else ("epoch", f"{each:.1f} s/epoch")
        line = f"{unit} {done}/{total}  {shown}  {pace}, {_minutes(each * (total - done))} left"
        Console(highlight=False, soft_wrap=True).print(line)


class EpochBar(RichProgressBar):
    """A progress bar over the batches of an epoch, below the lines of EpochLines."""

    def __init__(self) -> None:
        super().__init__()
        self._lines = EpochLines()

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Shows the bar and starts the clock."""
        super().on_train_start(trainer, pl_module)
        self._lines.on_train_start(trainer, pl_module)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Prints the epoch's line."""
        super().on_train_epoch_end(trainer, pl_module)
        self._lines.on_train_epoch_end(trainer, pl_module)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Advances the bar, and prints the line of a long epoch."""
        super().on_train_batch_end(trainer, pl_module, outputs, batch, batch_idx)
        self._lines.on_train_batch_end(trainer, pl_module, outputs, batch, batch_idx)

    def _get_train_description(self, current_epoch: int) -> str:
        return "" if _total_steps(self.trainer) else super()._get_train_description(current_epoch)

    def get_metrics(
        self, trainer: Trainer, pl_module: LightningModule
    ) -> dict[str, int | str | float | dict[str, float]]:
        """Loss and learning rate next to the bar, without the version number of the CSV file."""
        return {name: value for name, value in super().get_metrics(trainer, pl_module).items() if name != "v_num"}


def progress(context: RunContext) -> Callback:
    """A bar if standard output is a terminal, else lines."""
    del context
    return EpochBar() if sys.stdout.isatty() else EpochLines()


def _total_steps(trainer: Trainer) -> int | None:
    """The optimizer steps of a run that lasts `steps`; None for a run that lasts `epochs`."""
    task = cast(TaskModule, trainer.lightning_module)
    return None if trainer.fast_dev_run else task.optim.last_step  # type: ignore[attr-defined]


def _minutes(seconds: float) -> str:
    whole = int(seconds)
    if whole >= 3600:
        return f"{whole // 3600}:{whole // 60 % 60:02d} h"
    return f"{whole // 60}:{whole % 60:02d} min"
