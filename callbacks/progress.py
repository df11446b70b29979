"""Prints an estimate of the run's time, a line per epoch, lines within long epochs, and a bar on a terminal."""

from __future__ import annotations

import sys
import time
from typing import Any, cast

from pytorch_lightning import Callback, LightningModule, Trainer
from pytorch_lightning.callbacks import RichProgressBar

from sliceformer_lab.measures.call_cost import peak_memory
from sliceformer_lab.runs.plain_text import PlainConsole, format_clock
from sliceformer_lab.training.interfaces import TaskModule

FIRST, EVERY = 10.0, 60.0  # seconds to the estimate of the run's time, and between lines within an epoch
SHOWN = ("train/loss", "val/", "test_curve/")  # prefixes of the metrics that are printed


class EpochLines(Callback):
    """Prints one line per epoch, or per validation of a run that lasts `steps`, with the remaining time.

    An epoch of more than ten seconds gets its first line then, with an estimate for the run, and one every minute.
    The estimate leaves out the first step, which sets up memory and kernels, and what other callbacks do before it.
    """

    def __init__(self) -> None:
        super().__init__()
        self._first_step = 0  # of this start of the run
        self._started = self._second_started = 0.0  # when its first and its second step began
        self._next_line = 0.0  # when to print within an epoch

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Notes where this start of the run begins."""
        super().on_train_start(trainer, pl_module)
        self._first_step, self._started, self._second_started = trainer.global_step, 0.0, 0.0

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Starts the clock at the first batch."""
        super().on_train_batch_start(trainer, pl_module, batch, batch_idx)
        if not self._started:
            self._started = time.perf_counter()
            self._next_line = self._started + FIRST

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Prints a line within a long epoch: its finished share, the time that the run needs, and its memory."""
        super().on_train_batch_end(trainer, pl_module, outputs, batch, batch_idx)
        now = time.perf_counter()
        total = cast(TaskModule, trainer.lightning_module).num_steps
        done = trainer.global_step - self._first_step
        if done and not self._second_started:
            self._second_started = now
        if now < self._next_line or done < 2 or not total or not trainer.is_global_zero:
            return
        self._next_line = now + EVERY
        each = self._seconds_per_step(trainer, now)
        left = format_clock(each * (total - trainer.global_step))
        line = f"step {trainer.global_step:,}/{total:,}  {each:.2f} s/step, {left} left"
        if (peak := peak_memory(pl_module.device.type)) is not None:
            line = f"{line}, {peak / 1e9:.1f} GB"
        PlainConsole().print(line)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Prints the epoch's metrics and the remaining time."""
        super().on_train_epoch_end(trainer, pl_module)
        if not trainer.is_global_zero:
            return
        now, planned = time.perf_counter(), cast(TaskModule, trainer.lightning_module).num_steps
        is_trial = trainer.fast_dev_run  # type: ignore[attr-defined]
        total = trainer.global_step if is_trial else planned or trainer.global_step
        self._next_line = max(self._next_line, now + FIRST)
        each = self._seconds_per_step(trainer, now)
        metrics = sorted(trainer.callback_metrics.items())
        shown = "  ".join(f"{name} {float(value):.4f}" for name, value in metrics if name.startswith(SHOWN))
        place, pace = f"step {trainer.global_step}/{total}", format_pace(each)
        if not _total_steps(trainer):
            done = trainer.current_epoch + 1
            place, pace = f"epoch {done}/{trainer.max_epochs}", f"{each * trainer.global_step / done:.1f} s/epoch"
        line = f"{place}  {shown}  {pace}, {format_clock(each * (total - trainer.global_step))} left"
        PlainConsole().print(line)

    def _seconds_per_step(self, trainer: Trainer, now: float) -> float:
        """Mean time of a step, with validation; of the first step only if there is no other."""
        done = trainer.global_step - self._first_step
        return (now - self._second_started) / (done - 1) if done > 1 else now - self._started


def format_pace(seconds: float) -> str:
    """The pace of steps that take so many seconds each: 12.5 steps/s, or 26.74 s/step for slow ones."""
    return f"{1 / seconds:.1f} steps/s" if seconds < 1 else f"{seconds:.2f} s/step"


class EpochBar(EpochLines, RichProgressBar):
    """A progress bar over the batches of an epoch, below the lines of EpochLines."""

    def _get_train_description(self, current_epoch: int) -> str:
        return "" if _total_steps(self.trainer) else super()._get_train_description(current_epoch)

    def get_metrics(
        self, trainer: Trainer, pl_module: LightningModule
    ) -> dict[str, int | str | float | dict[str, float]]:
        """Loss and learning rate next to the bar, without the version number of the CSV file."""
        return {name: value for name, value in super().get_metrics(trainer, pl_module).items() if name != "v_num"}


def progress() -> Callback:
    """A bar if standard output is a terminal, else lines."""
    return EpochBar() if sys.stdout.isatty() else EpochLines()


def _total_steps(trainer: Trainer) -> int | None:
    """The optimizer steps of a run that lasts `steps`; None for a run that lasts `epochs`."""
    task = cast(TaskModule, trainer.lightning_module)
    return None if trainer.fast_dev_run else task.optim.last_step  # type: ignore[attr-defined]
