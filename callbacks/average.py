"""A moving average of the weights."""

from __future__ import annotations

from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.callbacks import EMAWeightAveraging

from sliceformer_lab.config.option_types import Count, Fraction


class MovingAverage(EMAWeightAveraging):
    """Lightning's exponential moving average of the weights, which is validated, saved and scored in their place.

    `decay` is the share of the old average in each update, and `every` the optimiser steps from one to the next.
    Buffers are those of the last step: the mean of shifts or permutations, rounded, is another operator.
    """

    def __init__(self, *, decay: Fraction = 0.999, every: Count = 1) -> None:
        super().__init__(decay=decay, update_every_n_steps=every, use_buffers=False)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Ends the averaging. Otherwise the scoring by this trainer would read the weights that were not averaged."""
        super().on_train_end(trainer, pl_module)
        self._average_model = None
