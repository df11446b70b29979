"""Logs training speed and peak memory."""

from __future__ import annotations

import time
from typing import Any

from pytorch_lightning import Callback, LightningModule, Trainer

from sliceformer_lab.config.option_types import Natural
from sliceformer_lab.measures.call_cost import peak_memory, start_new_peak


class Throughput(Callback):
    """Counts training samples per second over all processes, without validation and the first batches of a run.

    A run has no speed before it has counted as many batches as it left out: one short batch says nothing.
    """

    def __init__(self, *, warmup_batches: Natural = 5) -> None:
        self._warmup_batches = warmup_batches
        self._batches, self._samples, self._seconds, self._since = 0, 0, 0.0, 0.0

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Forgets the memory of what this process did before, such as earlier jobs of a sweep."""
        start_new_peak(pl_module.device.type)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Starts the clock here too, because a run that continues within an epoch does not start the epoch."""
        self._since = time.perf_counter()

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Starts the clock, so that the time between epochs is not counted."""
        self._since = time.perf_counter()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Counts a batch and the time since the last one, including its loading."""
        now = time.perf_counter()
        self._batches += 1
        if self._batches > self._warmup_batches:
            self._samples += len(batch) * trainer.world_size
            self._seconds += now - self._since
        self._since = now

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Logs speed and memory so far; in a distributed run the memory of the largest process."""
        if self._seconds and self._batches >= 2 * self._warmup_batches:
            pl_module.log("train/samples_per_second", self._samples / self._seconds, sync_dist=True)
        if (peak := peak_memory(pl_module.device.type)) is not None:
            pl_module.log("train/peak_memory_gb", peak / 1e9, sync_dist=True, reduce_fx="max")
