"""Training speed and peak memory."""

from __future__ import annotations

import resource
import time
from typing import Annotated, Any

import torch
from pydantic import Field
from pytorch_lightning import Callback, LightningModule, Trainer

from sliceformer_lab.training.context import RunContext


class Throughput(Callback):
    """Counts training samples a second over all processes, validation and the first batches of a run left out."""

    def __init__(self, context: RunContext, *, warmup_batches: Annotated[int, Field(ge=0)] = 5) -> None:
        del context
        self._warmup_batches = warmup_batches
        self._batches, self._samples, self._seconds, self._since = 0, 0, 0.0, 0.0

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Start the clock, so that what lies between epochs is not counted."""
        self._since = time.perf_counter()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Count a batch and the time since the last, its loading included."""
        now = time.perf_counter()
        self._batches += 1
        if self._batches > self._warmup_batches:
            self._samples += len(batch) * trainer.world_size
            self._seconds += now - self._since
        self._since = now

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Log speed and memory so far; of a distributed run the largest process."""
        if self._seconds:
            pl_module.log("train/samples_per_second", self._samples / self._seconds, sync_dist=True)
        pl_module.log("train/peak_memory_gb", peak_memory_gb(), sync_dist=True, reduce_fx="max")


def peak_memory_gb() -> float:
    """Highest memory of this process so far: on the GPU where it used one, else resident."""
    if torch.cuda.is_available() and torch.cuda.max_memory_allocated():
        return torch.cuda.max_memory_allocated() / 1e9
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
