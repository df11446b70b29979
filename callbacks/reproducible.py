"""Makes random numbers depend only on the run's seed and the epoch."""

from __future__ import annotations

import random

import numpy as np
import torch
from pytorch_lightning import Callback, LightningModule, Trainer

from sliceformer_lab.training.context import RunContext


class EpochSeed(Callback):
    """Seeds the generators of dropout and Mixup at the start of each epoch.

    A run resumed at an epoch boundary then draws the same numbers as an uninterrupted run. Each process of a
    distributed run draws different numbers. Data loaders seed order and augmentation themselves.
    """

    def __init__(self, context: RunContext) -> None:
        self._seed = context.seed

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Seeds python, numpy and torch from (seed, epoch, process)."""
        parts = (self._seed, trainer.current_epoch, trainer.global_rank)
        number = int(np.random.SeedSequence(parts).generate_state(1)[0])
        random.seed(number)
        np.random.seed(number)
        torch.manual_seed(number)
