"""Makes random numbers depend only on the run's seed and its place in the training."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch
from pytorch_lightning import Callback, LightningModule, Trainer

from sliceformer_lab.errors import RunFolderError
from sliceformer_lab.training.context import RunContext
from sliceformer_lab.training.processes.other_processes import of_all_processes


class EpochSeed(Callback):
    """Seeds the generators of dropout and Mixup at the start of each epoch, and saves their states in checkpoints.

    A resumed run then draws the same numbers as an uninterrupted run, also within an epoch. Each process of a
    distributed run draws different numbers. Data loaders seed order and augmentation themselves.
    """

    def __init__(self, context: RunContext) -> None:
        self._seed = context.seed
        self._saved: list[dict[str, Any]] | None = None  # the states of all processes in the checkpoint

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Raises RunFolderError if a run is resumed with another number of processes."""
        if self._saved is not None and len(self._saved) != trainer.world_size:
            raise RunFolderError(
                f"trainer.devices: {len(self._saved)} processes trained this run and not {trainer.world_size}; "
                "with another number each step has other examples, so resume with the same number or start a new run"
            )

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Seeds python, numpy and torch from (seed, epoch, process). Lightning skips it when it resumes an epoch."""
        parts = (self._seed, trainer.current_epoch, trainer.global_rank)
        number = int(np.random.SeedSequence(parts).generate_state(1)[0])
        random.seed(number)
        np.random.seed(number)
        torch.manual_seed(number)
        self._saved = None

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Restores the states before the first batch of a run that is resumed within an epoch."""
        if self._saved is not None:
            _restore_generators(self._saved[trainer.global_rank])
            self._saved = None

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Adds the states of all processes."""
        checkpoint["generators"] = of_all_processes(_read_generators())

    def on_load_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Keeps the states. A checkpoint of a run without this callback has none."""
        self._saved = checkpoint.get("generators")


def _read_generators() -> dict[str, Any]:
    """The states of the generators of Python, numpy and torch, as values that a checkpoint can hold."""
    kind, keys, *rest = np.random.get_state()
    return {
        "python": random.getstate(),
        "numpy": [kind, torch.from_numpy(np.asarray(keys, dtype=np.int64)), *rest],
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state() if torch.cuda.is_initialized() else None,  # type: ignore[no-untyped-call]
    }


def _restore_generators(states: dict[str, Any]) -> None:
    kind, keys, *rest = states["numpy"]
    random.setstate(states["python"])
    np.random.set_state((kind, keys.numpy().astype(np.uint32), *rest))
    torch.set_rng_state(states["torch"])
    if states["cuda"] is not None and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.set_rng_state(states["cuda"])
