"""A moving average of the weights."""

from __future__ import annotations

import logging
from typing import cast

from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.callbacks import EMAWeightAveraging

from sliceformer_lab.config.option_types import Count, Fraction
from sliceformer_lab.training.interfaces import TaskModule

MAX_FIRST_SHARE = 0.05  # of the weights after the first step in the average at the end

log = logging.getLogger(__name__)


class MovingAverage(EMAWeightAveraging):
    """Lightning's exponential moving average of the weights, which is validated, saved and scored in their place.

    `decay` is the share of the old average in each update, and `every` the optimiser steps from one to the next.
    Buffers are those of the last step: the mean of shifts or permutations, rounded, is another operator.
    """

    def __init__(self, *, decay: Fraction = 0.999, every: Count = 1) -> None:
        super().__init__(decay=decay, update_every_n_steps=every, use_buffers=False)
        self._decay = decay

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Warns if the average will consist mostly of early weights."""
        steps = cast(TaskModule, pl_module).num_steps
        if not steps or not trainer.is_global_zero:
            return
        updates = steps // self.update_every_n_steps
        if (share := self._decay**updates) > MAX_FIRST_SHARE:
            remedy = f"decay={0.01 ** (1 / updates):.2g}" if updates else f"every={max(1, steps // 20)}"
            log.warning(
                f"WARNING: {share:.0%} of the average of the weights will be those of the first step, as the run has "
                f"{updates:,} updates; try callbacks.ema.{remedy}"
            )

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Ends the averaging. Otherwise the scoring by this trainer would read the weights that were not averaged.

        Lightning calls `on_train_end` only where a batch was left to train.
        """
        self._average_model = None
