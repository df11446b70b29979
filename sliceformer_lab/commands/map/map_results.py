"""What the run folders of a map say about each cell."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean, median

from sliceformer_lab.commands.compare.search import Point, Trial, chosen_trial
from sliceformer_lab.commands.map.cells import Cell, Floors
from sliceformer_lab.commands.map.map_options import MapOptions
from sliceformer_lab.commands.map.rate_search import EARLY_SHARE, NUM_FINALISTS, SOLVED, next_trials, solving_trials
from sliceformer_lab.runs.collect import known_run
from sliceformer_lab.runs.job_state import state_of
from sliceformer_lab.runs.sweep import PlannedJob

SCORE = "test/accuracy"


@dataclass(frozen=True)
class ProbeRun:
    """One ended run of a cell."""

    rate: float
    seed: int
    status: str  # ok | failed | diverged
    value: float | None  # validation score of a tuning run, test score of a reporting run
    steps: int | None = None  # to .99 of validation; None: not reached
    seconds: float | None = None  # of the processor
    parameters: int | None = None
    commit: str | None = None
    error: str | None = None
    budget: int | None = None  # steps of its recipe

    @property
    def is_early(self) -> bool:
        """Whether it reached .99 within a part of its steps."""
        return self.steps is not None and self.budget is not None and self.steps <= EARLY_SHARE * self.budget


@dataclass(frozen=True)
class Result:
    """What is known of a cell."""

    cell: Cell
    tuning: tuple[ProbeRun, ...] = ()
    rate: float | None = None  # that was chosen; None: not yet
    reporting: tuple[ProbeRun, ...] = ()

    @cached_property
    def trials(self) -> list[Trial]:
        """The trial of each learning rate with its scores by seed; a run that diverged has the score of chance."""
        found = []
        tried = [run for run in self.tuning if run.status != "failed"]  # a failed run is neither a score nor chance
        for rate in dict.fromkeys(run.rate for run in tried):
            scores = [run.value for run in tried if run.rate == rate]
            known = tuple(self.chance if score is None else score for score in scores)
            found.append(Trial(Point(rate), known, lost=scores.count(None)))
        return found

    @property
    def chance(self) -> float:
        """The score of chance."""
        return self.cell.floors.chance if self.cell.floors else 0.0

    @property
    def early_rates(self) -> set[float]:
        """The learning rates that solved the probe early with the first seed."""
        return {run.rate for run in self.tuning if run.seed == self.cell.options.seed and run.is_early}

    @cached_property
    def next_trials(self) -> list[tuple[float, int]]:
        """The learning rates to try next, with their seeds; [] if the choice can be made."""
        if self.cell.refused:
            return []
        options = self.cell.options
        found = next_trials(self.trials, options.rates, self.chance, self.early_rates)
        return [(rate, options.tuning_seeds[number]) for rate, number in found]

    @property
    def next_jobs(self) -> list[PlannedJob]:
        """The runs that the cell needs next: trials, or the reporting seeds once its rate is chosen."""
        ended = {run.seed for run in self.reporting if run.status != "failed"}
        left = [] if self.rate is None else [seed for seed in self.cell.options.reporting_seeds if seed not in ended]
        wanted = self.next_trials or [(self.rate, seed) for seed in left if self.rate is not None]
        return [self.cell.job(rate, seed) for rate, seed in wanted]

    @property
    def runs_left(self) -> tuple[int, int]:
        """The fewest and the most runs to come: the next ones decide the rate, or as many others as the rule allows."""
        if not self.next_trials:
            return len(self.next_jobs), len(self.next_jobs)
        options = self.cell.options
        fewest = len(self.next_jobs) + options.seeds
        further = sum(len(trial.scores) - 1 for trial in self.trials)
        most = len(options.rates) - len(self.trials) + 2 * NUM_FINALISTS - further + options.seeds
        return fewest, max(fewest, most)

    @property
    def reason(self) -> str | None:
        """Why it stays empty; None: it is filled, or will be."""
        if not self.all_diverged:
            return self.cell.refused
        return f"every run diverged: {next((run.error for run in self.tuning if run.error), 'unknown')}"

    @property
    def all_diverged(self) -> bool:
        """Whether it stays empty because every learning rate diverged."""
        return not (self.cell.refused or self.rate is not None or not self.tuning or self.next_trials)

    @property
    def scores(self) -> list[float]:
        """The test score of each reporting seed that has ended; one that diverged has the score of chance."""
        known = [self.chance if run.status == "diverged" else run.value for run in self.reporting]
        return [score for score in known if score is not None]

    @property
    def diverged(self) -> int:
        """The reporting seeds that diverged."""
        return sum(run.status == "diverged" for run in self.reporting)

    @property
    def mean(self) -> float | None:
        """The mean test score; None: no reporting run has ended."""
        return fmean(self.scores) if self.scores else None

    @property
    def steps(self) -> float | None:
        """Median of the steps to .99; None unless every reporting run that has ended reached it."""
        reached = [run.steps for run in self.reporting if run.value is not None and run.steps is not None]
        return median(reached) if reached and len(reached) == len(self.scores) else None

    @property
    def parameters(self) -> int | None:
        """Parameters of the model; None: no run has ended."""
        return next((run.parameters for run in (*self.tuning, *self.reporting) if run.parameters), None)

    @property
    def at_edge(self) -> bool:
        """Whether the chosen rate solved nothing and is the last on its side, of several tried and of the options."""
        best = [run.value for run in self.tuning if run.rate == self.rate and run.value is not None]
        tried, rates = {run.rate for run in self.tuning}, self.cell.options.rates
        is_last = any(self.rate == end(tried) == end(rates) for end in (min, max) if tried)
        return bool(best) and fmean(best) < SOLVED and len(tried) > 1 and is_last

    @property
    def share(self) -> float | None:
        """(score - chance) / (1 - chance)."""
        floors = self.cell.floors
        return None if self.mean is None or floors is None else (self.mean - floors.chance) / (1 - floors.chance)


@dataclass(frozen=True, eq=False)
class Map:
    """A map, finished or not."""

    options: MapOptions
    results: Mapping[tuple[str, str], Result]  # of each cell, by attention and probe

    @property
    def commits(self) -> list[str]:
        """The versions of the code that its runs are of; one that was refused before it began has none."""
        runs = [run for one in self.results.values() for run in (*one.tuning, *one.reporting)]
        return sorted({run.commit for run in runs if run.commit is not None})

    @property
    def floors(self) -> list[Floors | None]:
        """The floors of each probe."""
        return [self.results[self.options.attentions[0], probe].cell.floors for probe in self.options.probes]


def read_result(folder: Path, cell: Cell) -> Result:
    """What the folder of a map's runs says about a cell."""
    if cell.refused:
        return Result(cell)
    options = cell.options
    tuning = _ended_runs(folder, cell, options.rates, options.tuning_seeds)
    tried = Result(cell, tuning)
    candidates = solving_trials(tried.trials, tried.early_rates) or tried.trials
    best = chosen_trial(candidates, 1.0, options.rates[0])
    if tried.next_trials or best is None:
        return tried
    rate = best.point.rate
    return Result(cell, tuning, rate, _ended_runs(folder, cell, [rate], options.reporting_seeds))


def _ended_runs(folder: Path, cell: Cell, rates: Iterable[float], seeds: Sequence[int]) -> tuple[ProbeRun, ...]:
    return tuple(run for rate in rates for seed in seeds if (run := _ended_run(folder, cell, rate, seed)) is not None)


def _ended_run(folder: Path, cell: Cell, rate: float, seed: int) -> ProbeRun | None:
    """The run of a learning rate and a seed; None if it has not ended."""
    place = folder / cell.job(rate, seed).name
    state, record = state_of(place), known_run(place)
    if not state.is_final:
        return None
    value = record.metric(SCORE) if record is not None and seed in cell.options.reporting_seeds else state.value
    if record is None:  # refused before it began
        return ProbeRun(rate, seed, state.status, None, error=state.error)
    one = record.summary
    return ProbeRun(
        rate,
        seed,
        state.status,
        value if state.status == "ok" else None,
        one.steps_to_stop_at,
        one.processor_seconds,
        one.parameters,
        one.git_commit,
        state.error,
        one.steps.planned,
    )
