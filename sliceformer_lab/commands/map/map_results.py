"""What the run folders of a map say about each cell."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any

from sliceformer_lab.commands.compare.search import Point, Trial, chosen_trial
from sliceformer_lab.commands.map.cells import SOLVED, Cell, Floors, next_rate
from sliceformer_lab.commands.map.map_options import MapOptions
from sliceformer_lab.errors import RunFolderError
from sliceformer_lab.runs.folder import read_summary
from sliceformer_lab.runs.job_state import state_of
from sliceformer_lab.runs.sweep import PlannedJob

SCORE, STEPS, SECONDS = "test/accuracy", "steps_to_stop_at", "processor_seconds"


@dataclass(frozen=True)
class ProbeRun:
    """One ended run of a cell."""

    rate: float
    seed: int
    status: str  # ok | failed | diverged
    value: float | None  # validation score of a tuning run, test score of a reporting run
    steps: int | None  # to .99 of validation; None: not reached
    seconds: float | None  # of the processor
    parameters: int | None
    commit: str | None
    error: str | None


@dataclass(frozen=True)
class Result:
    """What is known of a cell."""

    cell: Cell
    reason: str | None  # why it stays empty; None: it is filled, or will be
    tuning: tuple[ProbeRun, ...]
    rate: float | None  # that was chosen; None: not yet
    reporting: tuple[ProbeRun, ...]
    floors: Floors | None

    @property
    def scores(self) -> list[float]:
        """The test score of each reporting seed that has ended."""
        return [run.value for run in self.reporting if run.value is not None]

    @property
    def mean(self) -> float | None:
        """The mean test score; None: no reporting run has ended."""
        return fmean(self.scores) if self.scores else None

    @property
    def steps(self) -> float | None:
        """Median of the steps to .99; None unless every reporting run that has ended reached it."""
        found = [run.steps for run in self.reporting if run.value is not None]
        reached = [steps for steps in found if steps is not None]
        return median(reached) if reached and len(reached) == len(found) else None

    @property
    def parameters(self) -> int | None:
        """Parameters of the model; None: no run has ended."""
        return next((run.parameters for run in (*self.tuning, *self.reporting) if run.parameters), None)

    @property
    def at_edge(self) -> bool:
        """Whether the chosen rate solved nothing and is the smallest or largest of several tried."""
        tried = {run.rate for run in self.tuning}
        best = [run.value for run in self.tuning if run.rate == self.rate and run.value is not None]
        return bool(best) and fmean(best) < SOLVED and len(tried) > 1 and self.rate in (min(tried), max(tried))

    @property
    def share(self) -> float | None:
        """(score - chance) / (1 - chance)."""
        if self.mean is None or self.floors is None:
            return None
        return (self.mean - self.floors.chance) / (1 - self.floors.chance)


@dataclass(frozen=True, eq=False)
class Map:
    """A map, finished or not."""

    options: MapOptions
    results: Mapping[tuple[str, str], Result]  # of each cell, by attention and probe
    floors: Mapping[str, Floors]


def read_map(
    folder: Path, options: MapOptions, cells: Iterable[Cell], empty: Mapping[Cell, str], floors: Mapping[str, Floors]
) -> Map:
    """The map as the folder of its runs shows it. `empty` says why some cells have no runs."""
    results = {
        (cell.attention, cell.probe): (
            Result(cell, empty[cell], (), None, (), floors.get(cell.probe))
            if cell in empty
            else _result(folder, cell, floors[cell.probe])
        )
        for cell in cells
    }
    return Map(options, results, floors)


def _result(folder: Path, cell: Cell, floors: Floors) -> Result:
    reason, options = None, cell.options
    tuning = _tuning_runs(folder, cell)
    trials = tried_rates(folder, cell, floors.chance)
    is_chosen = next_rate(trials, options.rates, options.edge_rate) is None
    best = chosen_trial(trials, 1.0, options.rates[0]) if is_chosen else None
    rate = None if best is None else best.point.rate
    if is_chosen and rate is None:
        reason = f"every run diverged: {next((run.error for run in tuning if run.error), 'unknown')}"
    jobs = {} if rate is None else {seed: cell.reporting(rate, seed) for seed in options.reporting_seeds}
    found = [_ended_run(folder, job, rate or 0.0, seed, SCORE) for seed, job in jobs.items()]
    return Result(cell, reason, tuning, rate, tuple(run for run in found if run), floors)


def tried_rates(folder: Path, cell: Cell, chance: float) -> list[Trial]:
    """The trial of each learning rate whose runs have all ended; a run that diverged has the score of chance."""
    runs = _tuning_runs(folder, cell)
    found = []
    for rate in dict.fromkeys(run.rate for run in runs):
        scores = [run.value for run in runs if run.rate == rate]
        if len(scores) >= len(cell.options.tuning_seeds):
            known = tuple(chance if score is None else score for score in scores)
            found.append(Trial(Point(rate), known, lost=scores.count(None)))
    return found


def _tuning_runs(folder: Path, cell: Cell) -> tuple[ProbeRun, ...]:
    options = cell.options
    edge = options.edge_rate
    rates = [*options.rates, *([edge] if edge is not None and edge not in options.rates else [])]
    seeds = (*options.tuning_seeds, options.deciding_seed)
    runs = [_ended_run(folder, cell.tuning(rate, seed), rate, seed, None) for rate in rates for seed in seeds]
    return tuple(run for run in runs if run is not None)


def _ended_run(folder: Path, job: PlannedJob, rate: float, seed: int, metric: str | None) -> ProbeRun | None:
    """A run that has ended, with a metric of its summary or the monitored value; None if it has not ended."""
    state = state_of(folder / job.name)
    if not state.is_final:
        return None
    try:
        summary: Mapping[str, Any] = read_summary(folder / job.name)
    except RunFolderError:  # refused before it began
        summary = {}
    metrics: Mapping[str, float] = summary.get("metrics") or {}
    value = (state.value if metric is None else metrics.get(metric)) if state.status == "ok" else None
    steps, seconds, parameters, commit = (summary.get(key) for key in (STEPS, SECONDS, "parameters", "git_commit"))
    return ProbeRun(rate, seed, state.status, value, steps, seconds, parameters, commit, state.error)
