"""Equal time: measures the training steps of all rows in turns, and how many steps each row gets."""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

from sliceformer_lab.batch import Batch
from sliceformer_lab.commands.compare.compare_options import BASE
from sliceformer_lab.config.checked import RunPlan, check_config
from sliceformer_lab.config.schema import ConfigError
from sliceformer_lab.measures.call_cost import in_turns
from sliceformer_lab.permute import available_backends
from sliceformer_lab.runs.processes import num_cores
from sliceformer_lab.training.build import build_data, build_task
from sliceformer_lab.training.choices import with_choices
from sliceformer_lab.training.interfaces import DataModule, TaskModule

ROUNDS, STEPS, BATCHES = 5, 20, 20  # rounds of so many steps, on so many different batches
LONGEST = 2.0  # seconds of a round of one row; slower steps are measured in shorter rounds
MOST_SPREAD = 0.05  # interquartile range of the rounds, as a share of their median
FEWEST, MOST = 0.25, 4.0  # times the steps of mha


@dataclass(frozen=True)
class StepTime:
    """The seconds of a training step of one row."""

    median: float
    spread: float  # interquartile range of the rounds, as a share of the median


@dataclass(frozen=True)
class Times:
    """What was measured, and what follows from it."""

    rows: Mapping[str, StepTime]  # by attention, mha among them
    steps: int  # of the run of mha
    steps_per_epoch: int
    load: float  # of the machine before the measurement
    machine: str
    noise: str | None  # why the machine was too noisy; None: it was not

    def ratio(self, attention: str) -> float:
        """The time of a step relative to mha's."""
        return self.rows[attention].median / self.rows[BASE].median

    def steps_of(self, attention: str) -> tuple[int, bool]:
        """The steps that take as long as the run of mha, and whether they were cut to a quarter or four times."""
        share = 1 / self.ratio(attention)
        return max(1, round(self.steps * min(MOST, max(FEWEST, share)))), not FEWEST <= share <= MOST

    def as_json(self) -> dict[str, Any]:
        """The content of times.json."""
        return asdict(self)

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Times:
        """The times that `as_json` wrote."""
        rows = {name: StepTime(**row) for name, row in content["rows"].items()}
        return cls(**{**content, "rows": rows})


def time_words(optim: Mapping[str, Any], steps: int, base_steps: int, steps_per_epoch: int) -> tuple[str, ...]:
    """The overrides that train for so many steps; warm-up and decay are stretched with them. Raises ConfigError."""
    if optim["schedule"] == "multistep":
        raise ConfigError("axes=time: a schedule with milestones counts epochs; take axes=params or another schedule")
    share = steps / base_steps
    stretched = [
        f"optim.{name}={round(optim[name] * share)}"
        for name in ("warmup_steps", "horizon")
        if isinstance(optim[name], int) and optim[name]
    ]
    every = optim["val_every"] or min(steps_per_epoch, steps)
    fixed = ("optim.epochs=null", "optim.target_steps=null", "optim.max_steps=null", "optim.interval=step")
    return (*fixed, f"optim.steps={steps}", f"optim.val_every={every}", *stretched)


def measure(configs: Mapping[str, Mapping[str, Any]]) -> Times:
    """Measures all rows in turns, in this process with one thread, or on the GPU that they train on."""
    load = os.getloadavg()[0]
    trained = next(iter(configs.values()))["trainer"]["accelerator"]
    device = "cuda" if trained in ("gpu", "cuda") else "cpu"
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        rows = {name: _Trained(config, device) for name, config in configs.items()}
        each = max(row.seconds for row in rows.values())
        count = max(2, min(STEPS, int(LONGEST / each)))
        found = in_turns({name: row.steps(count) for name, row in rows.items()}, ROUNDS, 1, device)
    finally:
        torch.set_num_threads(threads)
    times = {name: _step_time([seconds / count for seconds in rounds]) for name, rounds in found.items()}
    base = rows[BASE]
    return Times(times, base.planned, base.per_epoch, load, _machine(device), _noise(times, load))


def _step_time(seconds: list[float]) -> StepTime:
    low, middle, high = np.quantile(seconds, [0.25, 0.5, 0.75])
    return StepTime(float(middle), float((high - low) / middle))


def _noise(times: Mapping[str, StepTime], load: float) -> str | None:
    """Why a measurement cannot be trusted; None if it can."""
    faults = []
    if load > num_cores():
        faults.append(f"the load was {load:.1f} on {num_cores()} cores")
    worst = max(times, key=lambda name: times[name].spread)
    if times[worst].spread > MOST_SPREAD:
        faults.append(f"the steps of {worst} vary by {times[worst].spread:.0%}, more than {MOST_SPREAD:.0%}")
    return " and ".join(faults) or None


def _machine(device: str) -> str:
    backends = f"backends {', '.join(available_backends())}"
    return f"{torch.cuda.get_device_name()}, {backends}" if device == "cuda" else f"CPU, one thread, {backends}"


class _Trained:
    """A model that is trained on a few real batches, to measure its steps."""

    def __init__(self, config: Mapping[str, Any], device: str) -> None:
        plan = check_config({**config, "callbacks": {}, "logger": {}})
        data = build_data(plan)
        plan, _ = with_choices(plan, data)
        data.prepare_data()
        data.setup()
        self._task = build_task(plan, data.spec).to(device).train()
        self._optimizer = self._task.optim.build_optimizer(self._task)
        batches: list[Batch] = [one.to(device) for one in itertools.islice(data.train_dataloader(), BATCHES)]
        self._batches = itertools.cycle(batches)
        self.per_epoch = _steps_per_epoch(plan, data, self._task)
        self.planned = _planned_steps(self._task, self.per_epoch)
        self._step()
        self.seconds = in_turns({0: self._step}, 1, 1, device)[0][0]

    def steps(self, count: int) -> Callable[[], None]:
        """A function that trains for so many steps."""

        def run() -> None:
            for _ in range(count):
                self._step()

        return run

    def _step(self) -> None:
        task, optimizer = self._task, self._optimizer
        optimizer.zero_grad()
        for _ in range(task.optim.accumulate):
            batch = next(self._batches)
            loss: torch.Tensor = task.loss(task(batch), batch.target)
            loss.backward()  # type: ignore[no-untyped-call]
        if task.optim.clip_norm is not None:
            torch.nn.utils.clip_grad_norm_(task.parameters(), task.optim.clip_norm)
        optimizer.step()


def _steps_per_epoch(plan: RunPlan, data: DataModule, task: TaskModule) -> int:
    batches, limit = len(data.train_dataloader()), plan.trainer.limit_train_batches
    if limit is not None:
        batches = min(batches, limit) if isinstance(limit, int) else int(batches * limit)
    return max(1, math.ceil(batches / task.optim.accumulate))


def _planned_steps(task: TaskModule, per_epoch: int) -> int:
    optim = task.optim
    total = optim.steps or (optim.epochs or 1) * per_epoch
    return min(total, optim.last_step or total)
