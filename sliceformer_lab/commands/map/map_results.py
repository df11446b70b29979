"""What the run folders of a map say about each cell."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from statistics import fmean, median

from sliceformer_lab.commands.compare.search import Point, Trial, chosen_trial, contested_points
from sliceformer_lab.commands.compare.trials_of_rows import record_of
from sliceformer_lab.commands.map.cells import NUM_FINALISTS, SOLVED, Cell, Floors, next_trial
from sliceformer_lab.commands.map.map_options import MapOptions
from sliceformer_lab.runs.job_state import state_of

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
    tuning: tuple[ProbeRun, ...] = ()
    rate: float | None = None  # that was chosen; None: not yet
    reporting: tuple[ProbeRun, ...] = ()

    @cached_property
    def trials(self) -> list[Trial]:
        """The trial of each learning rate with its scores by seed; a run that diverged has the score of chance."""
        found = []
        for rate in dict.fromkeys(run.rate for run in self.tuning):
            scores = [run.value for run in self.tuning if run.rate == rate]
            known = tuple(self.chance if score is None else score for score in scores)
            found.append(Trial(Point(rate), known, lost=scores.count(None)))
        return found

    @property
    def chance(self) -> float:
        """The score of chance."""
        return self.cell.floors.chance if self.cell.floors else 0.0

    @cached_property
    def next_trial(self) -> tuple[float, int] | None:
        """The learning rate to try next and its seed; None if the choice can be made."""
        options = self.cell.options
        if (
            self.cell.refused
            or (found := next_trial(self.trials, options.rates, options.edge_rate, self.chance)) is None
        ):
            return None
        rate, number = found
        return rate, options.tuning_seeds[number]

    @property
    def contested_rates(self) -> list[float]:
        """The learning rates that the seeds disagree on, between which a further one decides."""
        seen_twice = [replace(trial, scores=trial.scores[:2]) for trial in self.trials if len(trial.scores) > 1]
        return [point.rate for point in contested_points(seen_twice, 1.0, self.cell.options.rates[0])]

    @property
    def runs_left(self) -> tuple[int, int]:
        """About the fewest and the most runs to come.

        They are the fewest if the next rate solves the probe, and the most if none does and a further seed decides.
        """
        options = self.cell.options
        if self.next_trial is not None:
            untried = len(options.all_rates) - len(self.trials)
            seen_twice = sum(len(trial.scores) > 1 for trial in self.trials)
            fewest = 2 if self.next_trial[1] == options.seed else 1
            most = untried + max(0, NUM_FINALISTS - seen_twice) + NUM_FINALISTS
            return fewest + options.seeds, most + options.seeds
        reporting = options.seeds - len(self.reporting) if self.rate is not None else 0
        decided = sum(run.seed == options.deciding_seed for run in self.tuning)
        return reporting, reporting + len(self.contested_rates) - decided

    @property
    def reason(self) -> str | None:
        """Why it stays empty; None: it is filled, or will be."""
        if self.cell.refused or self.rate is not None or not self.tuning or self.next_trial is not None:
            return self.cell.refused
        return f"every run diverged: {next((run.error for run in self.tuning if run.error), 'unknown')}"

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
        """Whether the chosen rate solved nothing and is the smallest or largest of several tried."""
        tried = {run.rate for run in self.tuning}
        best = [run.value for run in self.tuning if run.rate == self.rate and run.value is not None]
        return bool(best) and fmean(best) < SOLVED and len(tried) > 1 and self.rate in (min(tried), max(tried))

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
    tuning = _ended_runs(folder, cell, options.all_rates, (*options.tuning_seeds, options.deciding_seed))
    tried = Result(cell, tuning)
    best = chosen_trial(tried.trials, 1.0, options.rates[0]) if tried.next_trial is None else None
    if best is None:
        return tried
    rate = best.point.rate
    return Result(cell, tuning, rate, _ended_runs(folder, cell, [rate], options.reporting_seeds))


def _ended_runs(folder: Path, cell: Cell, rates: Iterable[float], seeds: Sequence[int]) -> tuple[ProbeRun, ...]:
    return tuple(run for rate in rates for seed in seeds if (run := _ended_run(folder, cell, rate, seed)) is not None)


def _ended_run(folder: Path, cell: Cell, rate: float, seed: int) -> ProbeRun | None:
    """The run of a learning rate and a seed; None if it has not ended."""
    place = folder / cell.job(rate, seed).name
    state, record = state_of(place), record_of(place)
    if not state.is_final:
        return None
    value = record.metric(SCORE) if record is not None and seed in cell.options.reporting_seeds else state.value
    summary = record.summary if record is not None else {}  # refused before it began
    steps, seconds, size, commit = (summary.get(key) for key in (STEPS, SECONDS, "parameters", "git_commit"))
    known = value if state.status == "ok" else None
    return ProbeRun(rate, seed, state.status, known, steps, seconds, size, commit, state.error)
