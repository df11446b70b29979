"""Whole training steps: by Lightning with the usual callbacks, and in a bare loop, with the time of each part."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch

from sliceformer_lab.batch import Batch
from sliceformer_lab.commands.benchmark.training_recipes import PARTS
from sliceformer_lab.config.checked import RunPlan
from sliceformer_lab.training.build import build_task
from sliceformer_lab.training.context import RunContext
from sliceformer_lab.training.fitting import build_loggers, build_trainer
from sliceformer_lab.training.interfaces import DataModule, TaskModule
from sliceformer_lab.training.trainer import compile_encoder


@dataclass(frozen=True)
class StepTimes:
    """Mean seconds of a step, and of its parts where they are known."""

    seconds: float
    cpu_seconds: float  # processor time of all threads
    parts: Mapping[str, float]  # by PARTS; empty: not known


class Training:
    """A task, its data and its recipe: what both ways of training share."""

    def __init__(self, plan: RunPlan, data: DataModule, folder: Path) -> None:
        torch.manual_seed(0)
        self.plan, self.data, self.folder = plan, data, folder
        self.task: TaskModule = build_task(plan, data.spec)
        self.task.initialise()
        if plan.trainer.compile:
            compile_encoder(self.task.encoder)
        self._cuda = plan.trainer.accelerator == "gpu"

    def with_lightning(self, skipped: int, steps: int) -> StepTimes:
        """Steps of a run as users start it, with callbacks and the CSV logger, without the end of the epoch."""
        context = RunContext(folder=self.folder, seed=self.plan.seed, monitor=None, monitor_mode=self.task.monitor_mode)
        trainer = build_trainer(self.plan, context, self.task, build_loggers(self.plan, context))
        watch = _StepWatch(skipped, steps, self._clock)
        trainer.callbacks.append(watch)  # type: ignore[attr-defined]
        with suppress(_Enough):
            trainer.fit(self.task, datamodule=self.data)
        return watch.times()

    def with_bare_loop(self, skipped: int, steps: int) -> StepTimes:
        """Steps of the same task, loader and optimiser in a loop of a few lines."""
        times = self._loop(skipped, steps, by_part=not self._cuda)
        if not self._cuda:
            return times
        parts = self._loop(skipped, steps, by_part=True).parts  # waits for the GPU after each part
        return StepTimes(times.seconds, times.cpu_seconds, parts)

    def _loop(self, skipped: int, steps: int, *, by_part: bool) -> StepTimes:
        task, clip = self.task.to("cuda" if self._cuda else "cpu"), self.task.optim.clip_norm
        task.train()
        optimizer = task.optim.build_optimizer(task)
        schedule = task.optim.build_schedule(optimizer, 1000)
        batches = iter(self.data.train_dataloader())
        spent = dict.fromkeys(PARTS, 0.0)
        start = cpu_start = 0.0
        clock = self._clock if by_part else time.perf_counter
        for step in range(skipped + steps):
            if step == skipped:
                spent = dict.fromkeys(PARTS, 0.0)
                start, cpu_start = self._clock(), time.process_time()
            begin = clock()
            batch: Batch = next(batches).to(task.device, non_blocking=True)
            loaded = clock()
            with self._autocast():
                loss = task.loss(task(batch), batch.target)
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            differentiated = clock()
            if clip is not None:
                torch.nn.utils.clip_grad_norm_(task.parameters(), clip)
            optimizer.step()
            schedule.step()
            end = clock()
            lasted = (loaded - begin, differentiated - loaded, end - differentiated)
            spent = {part: spent[part] + seconds for part, seconds in zip(PARTS, lasted, strict=True)}
        wall, cpu = (self._clock() - start) / steps, (time.process_time() - cpu_start) / steps
        return StepTimes(wall, cpu, {part: seconds / steps for part, seconds in spent.items()} if by_part else {})

    def _autocast(self) -> AbstractContextManager[object]:
        if self.plan.trainer.precision != "bf16-mixed":
            return nullcontext()
        return torch.autocast("cuda" if self._cuda else "cpu", dtype=torch.bfloat16)

    def _clock(self) -> float:
        if self._cuda:
            torch.cuda.synchronize()
        return time.perf_counter()


class _Enough(Exception):  # noqa: N818 - no error
    """Enough steps have been measured."""


class _StepWatch(pl.Callback):
    """Times the steps after the first `skipped`, from the end of one to the end of another, and ends the training."""

    def __init__(self, skipped: int, steps: int, clock: Callable[[], float]) -> None:
        self._skipped, self._steps, self._clock = skipped, steps, clock
        self._done = 0
        self._start = self._cpu_start = self._wall = self._cpu = 0.0

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Counts a step."""
        del trainer, pl_module, outputs, batch, batch_idx
        self._done += 1
        if self._done == self._skipped:
            self._start, self._cpu_start = self._clock(), time.process_time()
        elif self._done == self._skipped + self._steps:
            self._wall, self._cpu = self._clock() - self._start, time.process_time() - self._cpu_start
            raise _Enough

    def times(self) -> StepTimes:
        """The measurement. Raises ValueError if the training ended before it."""
        if not self._wall:
            raise ValueError(f"the training ended after {self._done} of {self._skipped + self._steps} steps")
        return StepTimes(self._wall / self._steps, self._cpu / self._steps, {})
