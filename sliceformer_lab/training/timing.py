"""Times training steps in a bare loop: to estimate what a run would cost, and to give several models equal time."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from sliceformer_lab.batch import Batch
from sliceformer_lab.config.checked import check_config
from sliceformer_lab.measures.call_cost import in_turns, quartiles
from sliceformer_lab.training.build import build_data, build_task
from sliceformer_lab.training.choices import count_steps, device_of, with_choices
from sliceformer_lab.training.interfaces import DataModule, TaskModule
from sliceformer_lab.training.pretraining.pretrain import num_pretraining_steps
from sliceformer_lab.training.trainer import autocast

ROUNDS, STEPS, BATCHES = 5, 20, 20  # rounds of so many steps, on so many different batches
MAX_ROUND_S = 2.0  # of one model; slower steps are measured in shorter rounds
WARMUP = 2  # steps that `measured_cost` does not count
FLOATS = 3 * 3  # of each weight on disk: itself and two moments, in three checkpoints
BYTES = 4


@dataclass(frozen=True)
class StepTime:
    """The seconds of a training step of one model."""

    median: float
    spread: float  # interquartile range of the rounds, as a share of the median


class TimedTraining:
    """A model that trains in a bare loop, so that its steps can be timed.

    With `cached`, it repeats so many batches that are loaded before; else each step loads its own.
    """

    def __init__(self, config: Mapping[str, Any], device: str, cached: int | None = None) -> None:
        self.plan = check_config({**config, "callbacks": {}, "logger": {}})
        data = build_data(self.plan)
        self.plan, _ = with_choices(self.plan, data)
        data.setup()
        self.device = device
        self.task: TaskModule = build_task(self.plan, data.spec).to(device).train()
        self.task.initialise()
        self._optimizer = self.task.optim.build_optimizer(self.task)
        self._batches: Iterator[Batch] = _load_endlessly(data)
        if cached is not None:
            kept = [batch.to(device) for batch in itertools.islice(data.train_dataloader(), cached)]
            self._batches = itertools.cycle(kept)
        self.steps_per_epoch = count_steps(self.plan, self.task.optim, data)
        self.num_steps = self.task.optim.num_steps(self.steps_per_epoch)  # of the planned run
        whole = replace(self.task.optim, max_steps=None).num_steps(self.steps_per_epoch)
        self.is_shortened = self.num_steps < whole  # by optim.max_steps

    def step(self) -> None:
        """Train for one step."""
        task, optimizer = self.task, self._optimizer
        optimizer.zero_grad()
        for _ in range(task.optim.accumulate):
            batch = next(self._batches).to(self.device)
            with autocast(self.device, self.plan.trainer.precision):
                loss = task.loss(task(batch), batch.target)
            torch.autograd.backward(loss)
        if task.optim.clip_norm is not None:
            torch.nn.utils.clip_grad_norm_(task.parameters(), task.optim.clip_norm)
        optimizer.step()

    def steps(self, count: int) -> Callable[[], None]:
        """A function that trains for so many steps."""

        def train() -> None:
            for _ in range(count):
                self.step()

        return train


def measured_cost(config: Mapping[str, Any], limit: float) -> tuple[float, int]:
    """Seconds of training and pretraining, without validation, and bytes of checkpoints.

    Measured on a few steps of the training, for about `limit` seconds; a dry run makes no others and saves nothing.
    Raises LabError for a configuration that cannot run.
    """
    training = TimedTraining(config, device_of(config))
    times = [time.perf_counter()]
    while len(times) <= WARMUP + STEPS and times[-1] - times[0] <= limit:
        training.step()
        if training.device == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter())
    counted = times[WARMUP:] if len(times) > WARMUP + 1 else times
    each = (counted[-1] - counted[0]) / (len(counted) - 1)
    if dry := training.plan.trainer.fast_dev_run:
        return each * dry, 0
    parameters = sum(parameter.numel() for parameter in training.task.parameters())
    steps = training.num_steps + num_pretraining_steps(training.plan, training.steps_per_epoch)
    return each * steps, parameters * FLOATS * BYTES


def time_in_turns(trainings: Mapping[str, TimedTraining]) -> dict[str, StepTime]:
    """The time of a step of each model on one device; all take turns, and the first step is not counted."""
    device = next(iter(trainings.values())).device
    for one in trainings.values():
        one.step()
    slowest = max(in_turns({name: one.step for name, one in trainings.items()}, 1, 1, device).values())
    count = max(2, min(STEPS, int(MAX_ROUND_S / slowest[0])))
    found = in_turns({name: one.steps(count) for name, one in trainings.items()}, ROUNDS, 1, device)
    times = {name: quartiles([seconds / count for seconds in rounds]) for name, rounds in found.items()}
    return {name: StepTime(middle, (high - low) / middle) for name, (middle, low, high) in times.items()}


def _load_endlessly(data: DataModule) -> Iterator[Batch]:
    while True:
        yield from data.train_dataloader()
