"""How long a run would take and how much disk it would need, from a few of its steps."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytorch_lightning as pl

from sliceformer_lab.config.checked import check_config
from sliceformer_lab.training.build import build_data, build_task
from sliceformer_lab.training.choices import with_choices
from sliceformer_lab.training.context import RunContext
from sliceformer_lab.training.fitting import build_trainer
from sliceformer_lab.training.interfaces import TaskModule
from sliceformer_lab.training.pretraining.pretrain import times_as_long

WARMUP, STEPS = 2, 20  # steps that are not measured, and that are at most
FLOATS = 3 * 3  # of each weight on disk: itself and two moments, in three checkpoints
BYTES = 4


def measured_cost(config: Mapping[str, Any], folder: Path, limit: float) -> tuple[float, int]:
    """Seconds of training and pretraining, without validation, and bytes of checkpoints.

    Measured on the training, for about `limit` seconds. Raises LabError for a configuration that cannot run.
    """
    plan = check_config({**config, "callbacks": {}, "logger": {}})
    data = build_data(plan)
    plan, _ = with_choices(plan, data)
    task = build_task(plan, data.spec)
    task.initialise()
    context = RunContext(folder=folder, seed=plan.seed, monitor=None, monitor_mode=task.monitor_mode)
    trainer = build_trainer(plan, context, task, [])
    watch = _Stopwatch(limit)
    trainer.callbacks.append(watch)  # type: ignore[attr-defined]
    with suppress(_Enough):
        trainer.fit(task, datamodule=data)
    parameters = sum(parameter.numel() for parameter in task.parameters())
    return watch.seconds_of(task) * times_as_long(plan), parameters * FLOATS * BYTES


class _Enough(Exception):  # noqa: N818 - no error
    """Enough steps have been measured."""


class _Stopwatch(pl.Callback):
    """Ends a training after a few steps."""

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._times: list[float] = []

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Notes the time of a batch."""
        del trainer, pl_module, outputs, batch, batch_idx
        self._times.append(time.perf_counter())
        if len(self._times) > WARMUP + STEPS or self._times[-1] - self._times[0] > self._limit:
            raise _Enough

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Starts the clock."""
        del trainer, pl_module
        self._times.append(time.perf_counter())

    def seconds_of(self, task: TaskModule) -> float:
        """The time of all steps of the run."""
        measured = self._times[WARMUP:] if len(self._times) > WARMUP + 1 else self._times
        each = (measured[-1] - measured[0]) / max(1, len(measured) - 1)
        return each * (task.num_steps or 0) * task.optim.accumulate
