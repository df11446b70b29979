"""The results of a search: every trial, the final runs with intervals and paired tests, and the order of attentions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import numpy as np

from sliceformer_lab.commands.tune.search_space import Edge, Space
from sliceformer_lab.commands.tune.subjects import Subject
from sliceformer_lab.commands.tune.trials import Trial, best_of
from sliceformer_lab.commands.tune.tune_options import TuneOptions
from sliceformer_lab.errors import RunFolderError
from sliceformer_lab.measures.statistics import Interval, PairedTest, paired_tests, seed_interval
from sliceformer_lab.runs.folder import read_summary
from sliceformer_lab.runs.sweep import PlannedJob
from sliceformer_lab.training.goal import Goal

RESAMPLES = 2000


@dataclass(frozen=True)
class Record:
    """A search that has ended."""

    folder: Path
    options: TuneOptions
    goal: Goal
    space: Space  # as it has grown
    growths: tuple[tuple[Edge, ...], ...]
    trials: Mapping[Subject, tuple[Trial, ...]]


@dataclass(frozen=True)
class Scores:
    """The test scores of final runs with the same values."""

    by_seed: Mapping[int, float]
    planned: int
    test: PairedTest | None = None  # against the reference; None for the reference itself

    @property
    def mean(self) -> float | None:
        """Their mean; None without any."""
        return float(np.mean([*self.by_seed.values()])) if self.by_seed else None

    @property
    def interval(self) -> Interval | None:
        """The interval of the mean over seeds; None for fewer than three."""
        return seed_interval([*self.by_seed.values()], RESAMPLES, seed=0)


@dataclass(frozen=True)
class Result:
    """What the search found for one attention."""

    subject: Subject
    trials: tuple[Trial, ...]
    best: Trial | None
    tuned: Scores
    untuned: Scores | None  # with the recipe's own values

    @property
    def attention(self) -> str:
        """Its name."""
        return self.subject.attention

    @property
    def own(self) -> Trial:
        """The trial with the recipe's own values."""
        return self.trials[0]

    @property
    def best_value(self) -> float | None:
        """The validation score of the best trial."""
        return self.best.value if self.best else None

    @property
    def spent(self) -> Counter[str]:
        """The number of trials of each status."""
        return Counter(trial.status for trial in self.trials)


@dataclass(frozen=True)
class Orders:
    """The attentions from the best to the worst; those without a value in both cases are left out."""

    where: str  # on which data
    own: str  # with the recipe's own values, such as "csp > mha = identity"
    tuned: str


@dataclass(frozen=True)
class Results:
    """All results of a search."""

    record: Record
    rows: tuple[Result, ...]

    @property
    def metric(self) -> str:
        """The metric of the final runs."""
        return f"test/{self.record.goal.monitor}"

    def order(self, values: Mapping[str, float | None]) -> list[str]:
        """The attentions that have a value, the best first."""
        sign = self.record.goal.sign
        known = {name: value for name, value in values.items() if value is not None}
        return sorted(known, key=lambda name: -sign * known[name])

    def orders(self) -> list[Orders]:
        """The orders on validation, of one run each, and on the test set if there are untuned final runs."""
        found = [self._orders("on validation, one run each", [(r, r.own.value, r.best_value) for r in self.rows])]
        if self.record.options.untuned:
            means = [(r, r.untuned.mean if r.untuned else None, r.tuned.mean) for r in self.rows]
            found.append(self._orders("on the test set, means of the final runs", means))
        return found

    def _orders(self, where: str, values: Sequence[tuple[Result, float | None, float | None]]) -> Orders:
        both = [(row.attention, own, tuned) for row, own, tuned in values if own is not None and tuned is not None]
        owns, tuneds = {name: own for name, own, _ in both}, {name: tuned for name, _, tuned in both}
        return Orders(where, self._chain(owns), self._chain(tuneds))

    def _chain(self, values: Mapping[str, float]) -> str:
        ties = groupby(self.order(values), key=lambda name: values[name])
        return " > ".join(" = ".join(sorted(names)) for _, names in ties)


def results(record: Record, final: Path) -> Results:
    """The results of a search whose final runs are below the folder `final`."""
    metric = f"test/{record.goal.monitor}"
    tuned, untuned = [], []
    best = {subject: best_of(trials, record.goal.mode) for subject, trials in record.trials.items()}
    for subject, trial in best.items():
        point = None if trial is None else trial.point
        found = _scores(final, metric, [] if point is None else _jobs(subject, point))
        tuned.append(found)
        is_own = trial is not None and trial.number == 0
        untuned.append(found if is_own or trial is None else _scores(final, metric, _jobs(subject, None)))
    tuned, untuned = _tested(tuned), _tested(untuned)
    rows = [
        Result(subject, trials, best[subject], tuned[place], untuned[place] if record.options.untuned else None)
        for place, (subject, trials) in enumerate(record.trials.items())
    ]
    return Results(record, tuple(rows))


def _jobs(subject: Subject, point: Mapping[str, float] | None) -> list[tuple[int, PlannedJob]]:
    return [(seed, subject.final(seed, point)) for seed in subject.options.final_seeds]


def _scores(final: Path, metric: str, jobs: Sequence[tuple[int, PlannedJob]]) -> Scores:
    values = {}
    for seed, job in jobs:
        try:
            summary = read_summary(final / job.name)
        except RunFolderError:
            continue
        value = (summary.get("metrics") or {}).get(metric) if summary.get("status") == "ok" else None
        if value is not None:
            values[seed] = float(value)
    return Scores(values, len(jobs))


def _tested(scores: Sequence[Scores]) -> list[Scores]:
    """The scores with their tests against the first ones, paired by seed."""
    reference = scores[0].by_seed
    pairs = [
        None if not place else [value - reference[seed] for seed, value in one.by_seed.items() if seed in reference]
        for place, one in enumerate(scores)
    ]
    tests = paired_tests(pairs)
    return [Scores(one.by_seed, one.planned, test) for one, test in zip(scores, tests, strict=True)]
