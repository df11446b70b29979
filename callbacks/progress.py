"""Progress a person can follow: a line per epoch with what is left, and a bar under them on a terminal."""

from __future__ import annotations

import sys
import time

from pytorch_lightning import Callback, LightningModule, Trainer
from pytorch_lightning.callbacks import RichProgressBar
from rich.console import Console

from sliceformer_lab.context import RunContext

SHOWN = ("train/loss", "val/", "test_curve/")  # how the names of printed metrics begin


class EpochLines(Callback):
    """One plain line per epoch, with what is left, for logs and pipes."""

    def __init__(self) -> None:
        self._started, self._first_epoch = 0.0, 0

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Start the clock."""
        self._started, self._first_epoch = time.perf_counter(), trainer.current_epoch

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Print the epoch's metrics and the time that the rest will take."""
        if not trainer.is_global_zero:
            return
        done, total = trainer.current_epoch + 1, trainer.max_epochs or 0
        pace = (time.perf_counter() - self._started) / (done - self._first_epoch)
        metrics = sorted(trainer.callback_metrics.items())
        shown = "  ".join(f"{name} {float(value):.4f}" for name, value in metrics if name.startswith(SHOWN))
        line = f"epoch {done}/{total}  {shown}  {pace:.1f} s/epoch, {_minutes(pace * (total - done))} left"
        Console(highlight=False, soft_wrap=True).print(line)


class EpochBar(RichProgressBar):
    """A bar over the batches of an epoch, and the plain lines above it."""

    def __init__(self) -> None:
        super().__init__()
        self._lines = EpochLines()

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Show the bar and start the clock."""
        super().on_train_start(trainer, pl_module)
        self._lines.on_train_start(trainer, pl_module)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Print the epoch's line."""
        super().on_train_epoch_end(trainer, pl_module)
        self._lines.on_train_epoch_end(trainer, pl_module)

    def get_metrics(
        self, trainer: Trainer, pl_module: LightningModule
    ) -> dict[str, int | str | float | dict[str, float]]:
        """Loss and rate beside the bar, without the number of the CSV file."""
        return {name: value for name, value in super().get_metrics(trainer, pl_module).items() if name != "v_num"}


def progress(context: RunContext) -> Callback:
    """The kind of progress that suits where standard output goes."""
    del context
    return EpochBar() if sys.stdout.isatty() else EpochLines()


def _minutes(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d} min"
