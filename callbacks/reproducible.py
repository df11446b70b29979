"""Random numbers that depend on the run's seed and the epoch alone."""

from __future__ import annotations

import pytorch_lightning as pl
from pytorch_lightning import Callback, LightningModule, Trainer

from sliceformer_lab.context import RunContext


class EpochSeed(Callback):
    """Seeds dropout, Mixup and augmentation in the main process anew at each epoch.

    A run resumed at an epoch boundary then draws what the run that never stopped drew, and each process of a
    distributed run draws its own numbers. Loaders seed their workers themselves.
    """

    def __init__(self, context: RunContext) -> None:
        self._seed = context.seed

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Seed python, numpy and torch from (seed, epoch, process)."""
        number = (self._seed * 1_000_003 + trainer.current_epoch * 1_009 + trainer.global_rank) % 2**32
        pl.seed_everything(number, verbose=False)
