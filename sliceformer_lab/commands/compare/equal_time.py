"""Equal time: the steps that each row gets, from the time of its training steps beside those of mha."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from pydantic import TypeAdapter

from sliceformer_lab.commands.compare.compare_options import BASE_ROW, CompareOptions
from sliceformer_lab.commands.compare.compare_rows import ComparedRow, checked_row, row_words
from sliceformer_lab.config.schema import ConfigError
from sliceformer_lab.permute import available_backends
from sliceformer_lab.runs.files import write_json
from sliceformer_lab.runs.processes import num_cores
from sliceformer_lab.training.choices import device_of
from sliceformer_lab.training.timing import BATCHES, StepTime, TimedTraining, time_in_turns

MAX_SPREAD_SHARE = 0.05  # interquartile range of the rounds, as a share of their median
MIN_STEP_SHARE, MAX_STEP_SHARE = 0.25, 4.0  # of the steps of mha

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Times:
    """What was measured, and what follows from it."""

    rows: Mapping[str, StepTime]  # by attention, mha among them
    steps: int  # of the run of mha
    is_shortened: bool  # that run, by optim.max_steps
    steps_per_epoch: int
    load: float  # of the machine before the measurement
    machine: str
    noise: str | None  # why the machine was too noisy; None: it was not

    def ratio(self, attention: str) -> float:
        """The time of a step relative to mha's."""
        return self.rows[attention].median / self.rows[BASE_ROW].median

    def steps_of(self, attention: str) -> tuple[int, bool]:
        """The steps that take as long as the run of mha, and whether they were cut to a quarter or four times."""
        share = 1 / self.ratio(attention)
        is_cut = not MIN_STEP_SHARE <= share <= MAX_STEP_SHARE
        return max(1, round(self.steps * min(MAX_STEP_SHARE, max(MIN_STEP_SHARE, share)))), is_cut


def give_equal_time(rows: Sequence[ComparedRow], file: Path, options: CompareOptions) -> Times:
    """Measure the rows once, and give each the steps of its axis. Raises ConfigError on a noisy machine."""
    times = _read_times(file)
    if times is None or any(row.name not in times.rows for row in rows):
        log.info("measuring the training steps of all rows in turns")
        base, _ = checked_row(row_words(BASE_ROW, options), options.tuning_seeds[0])
        times = measure_times({BASE_ROW: base.plain, **{row.name: row.plan.plain for row in rows}})
    if times.noise is not None and not options.force_time:
        raise ConfigError(
            f"axes=time: {times.noise}; use a quieter machine, or go on with force_time=true, which is recorded, or "
            "with axes=params"
        )
    write_json(file, asdict(times))
    for row in rows:
        steps, _ = times.steps_of(row.name)
        optim = row.plan.plain["optim"]
        as_planned = row.name == BASE_ROW and optim["interval"] == "step"
        row.axis_words["time"] = () if as_planned else time_words(optim, steps, times)
    return times


def time_words(optim: Mapping[str, Any], steps: int, times: Times) -> tuple[str, ...]:
    """The overrides that train for so many steps; warm-up and decay are stretched with them. Raises ConfigError.

    Where `max_steps` shortens the run of mha, it shortens this one too, as it rescales the schedule.
    """
    if optim["schedule"] == "multistep":
        raise ConfigError("axes=time: a schedule with milestones counts epochs; take axes=params or another schedule")
    share = steps / times.steps
    stretched = [
        f"optim.{name}={round(optim[name] * share)}"
        for name in ("warmup_steps", "horizon")
        if isinstance(optim[name], int) and optim[name]
    ]
    every = optim["val_every"] or min(times.steps_per_epoch, steps)
    length = (f"optim.steps={steps}", "optim.max_steps=null")
    if times.is_shortened:
        length = (f"optim.steps={steps + 1}", f"optim.max_steps={steps}")  # it shortens only a longer run
    fixed = ("optim.epochs=null", "optim.target_steps=null", "optim.interval=step")
    return (*fixed, *length, f"optim.val_every={every}", *stretched)


def measure_times(configs: Mapping[str, Mapping[str, Any]]) -> Times:
    """Measure all rows in turns, in this process with one thread, or on the GPU that they train on."""
    load, threads = os.getloadavg()[0], torch.get_num_threads()
    device = device_of(configs[BASE_ROW])
    torch.set_num_threads(1)
    try:
        rows = {name: TimedTraining(config, device, BATCHES) for name, config in configs.items()}
        times = time_in_turns(rows)
    finally:
        torch.set_num_threads(threads)
    backends = f"backends {', '.join(available_backends())}"
    machine = f"{torch.cuda.get_device_name() if device == 'cuda' else 'CPU, one thread'}, {backends}"
    base = rows[BASE_ROW]
    lengths = base.num_steps, base.is_shortened, base.steps_per_epoch
    return Times(times, *lengths, load, machine, _explain_noise(times, load))


def _explain_noise(times: Mapping[str, StepTime], load: float) -> str | None:
    """Why a measurement cannot be trusted; None if it can."""
    faults = []
    if load > num_cores():
        faults.append(f"the load was {load:.1f} on {num_cores()} cores")
    worst = max(times, key=lambda name: times[name].spread)
    if times[worst].spread > MAX_SPREAD_SHARE:
        faults.append(f"the steps of {worst} vary by {times[worst].spread:.0%}, more than {MAX_SPREAD_SHARE:.0%}")
    return " and ".join(faults) or None


def _read_times(file: Path) -> Times | None:
    try:
        return TypeAdapter(Times).validate_json(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
