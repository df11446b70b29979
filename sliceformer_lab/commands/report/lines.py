"""The numbers of a report: one `Line` for each row of its tables, before formatting."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from sliceformer_lab.commands.report.report_options import ReportOptions
from sliceformer_lab.errors import RunFolderError
from sliceformer_lab.measures.metric_scale import format_value, less_is_better, metric_bounds
from sliceformer_lab.measures.statistics import (
    LEVEL,
    MIN_INTERVAL_RUNS,
    Estimate,
    Interval,
    Scored,
    estimate_over_splits,
    estimate_pairs,
    estimate_runs,
    holm,
)
from sliceformer_lab.runs.collect import RunRecord, Unit
from sliceformer_lab.runs.example_scores import example_scores, share_of_splits, split_of
from sliceformer_lab.runs.groups import Row, Table
from sliceformer_lab.runs.papers import PublishedResult, find_obstacles, find_published, published_results
from sliceformer_lab.runs.plain_text import counted

AT_CHANCE = ("failed", "diverged")  # failures of the method; a stopped run is not one
SAME_COST = 0.05
NOTHING_IN_COMMON = "no seed and split in common"
MACHINE_OPTIONS = ("trainer.accelerator", "trainer.devices", "trainer.precision")


@dataclass(frozen=True)
class RelativeCost:
    """A cost of a row, absolute and relative to the reference attention; None if unknown."""

    value: float | None
    ratio: float | None

    @property
    def is_other(self) -> bool:
        """Whether the cost differs from the reference by more than 5 %."""
        return self.ratio is not None and round(abs(self.ratio - 1), 9) > SAME_COST


@dataclass(frozen=True)
class Published:
    """The published numbers of the cell that a row repeats."""

    results: tuple[PublishedResult, ...]  # the row's own cell first, then cells of other tables for the same setting
    ours: float | None  # the mean of the cell's metric
    reasons: tuple[str, ...]  # why the two cannot be compared; empty if they can

    @property
    def value(self) -> float | None:
        """The number of the row's own cell; None if the paper prints FAIL."""
        return self.results[0].value

    @property
    def span(self) -> tuple[float, float] | None:
        """The smallest and largest number of all papers; None if there is none."""
        values = [result.value for result in self.results if result.value is not None]
        return (min(values), max(values)) if values else None

    @property
    def difference(self) -> float | None:
        """Our mean minus the published number; None unless the protocols are equal."""
        return None if self.reasons or self.ours is None or self.value is None else self.ours - self.value


@dataclass(frozen=True)
class Test:
    """The comparison of two rows on equal seeds and splits."""

    against: str
    pairs: int
    difference: float | None  # mean over the pairs
    estimate: Estimate | None  # of the difference; None for fewer than three pairs
    smallest: float | None = None  # the true difference that is found in 4 of 5 such tables, where it is known
    p: float | None = None  # of Student's test, Holm-adjusted over the table; None without an estimate that has one

    @property
    def verdict(self) -> str:
        """Whether the difference is significant, or why that was not tested."""
        if self.p is None and self.estimate is not None:
            return f"not tested: all pairs {self.estimate.describe_equal_pairs()}"
        if self.p is None and not self.pairs:
            return NOTHING_IN_COMMON
        if self.p is None:
            return f"not tested: {counted(self.pairs, 'pair')} (needs {MIN_INTERVAL_RUNS})"
        return "significant" if self.p < LEVEL else "not significant"


@dataclass(frozen=True)
class Line:
    """All numbers of a row."""

    row: Row
    values: dict[Unit, float]
    planned: int
    statuses: dict[str, int]  # status -> number of runs, including runs without the metric or a summary
    mean: float | None
    interval: Interval | None  # over seeds and test examples, or over seeds where the examples are not known
    chance: float | None  # of the table's metric; None if no run of the table records it
    mean_with_failures: float | None  # failed and diverged runs count as chance; None if there are none
    test: Test | None
    budget: str  # the budget that set the width of its runs
    parameters: RelativeCost
    multiply_adds: RelativeCost
    speed: RelativeCost
    published: Published | None
    notes: tuple[str, ...]


def lines(table: Table, options: ReportOptions) -> list[Line]:
    """A line for each row of a table, best mean first, or with `by` in the order of the table.

    p-values are adjusted over the table.
    """
    scores = SavedScores()
    tests = _test_rows(table, options, scores)
    found = [_build_line(table, row, test, options, scores) for row, test in zip(table.rows, tests, strict=True)]
    sign = 1 if less_is_better(table.metric) else -1
    return found if table.by else sorted(found, key=lambda line: (line.mean is None, sign * (line.mean or 0.0)))


def _build_line(table: Table, row: Row, test: Test | None, options: ReportOptions, scores: SavedScores) -> Line:
    values = row.values(table.metric)
    numbers = list(values.values())
    base = table.reference_for(row, options.reference)
    interval, remark = _compute_interval(row, table.metric, scores)
    published, unknown = _find_published(row)
    every = [run for each in table.rows for run in each.runs]
    chance = next((known for run in every if (known := _find_chance(run, table.metric)) is not None), None)
    return Line(
        row=row,
        values=values,
        planned=len({run.unit for run in row.runs}) + len(row.missing),
        statuses=_count_statuses(row, table.metric),
        mean=_mean_or_none(numbers),
        interval=interval,
        chance=chance,
        mean_with_failures=_with_failures(row, numbers, chance),
        test=test,
        budget=", ".join(dict.fromkeys(run.summary.budget for run in row.runs if run.summary.budget)),
        parameters=_compare_cost(row, base, lambda run: run.summary.parameters),
        multiply_adds=_compare_cost(row, base, lambda run: run.summary.cost_per_sample.get("multiply_adds")),
        speed=_compare_speed(row, base),
        published=published,
        notes=tuple(note for note in (*_list_remarks(row, table.metric, chance), remark, *unknown) if note),
    )


class SavedScores:
    """The scores of single examples of a table's runs, each read once."""

    def __init__(self) -> None:
        self._known: dict[Path, Scored | None] = {}
        self.faults: dict[Path, str] = {}  # of the folders whose predictions cannot be read

    def of(self, run: RunRecord, metric: str) -> Scored | None:
        """Ids and scores (E,); None if they are not known."""
        if run.folder not in self._known:
            self._known[run.folder] = None
            try:
                self._known[run.folder] = example_scores(run, metric)
            except RunFolderError as error:
                self.faults[run.folder] = str(error)
        return self._known[run.folder]


def _test_rows(table: Table, options: ReportOptions, scores: SavedScores) -> list[Test | None]:
    """Each row against its opponent; Holm counts the rows with enough pairs."""
    found = [_compare_rows(table, row, options, scores) for row in table.rows]
    estimates = [one.estimate for one in found if one is not None and one.estimate is not None]
    adjusted = iter(holm([estimate.p() for estimate in estimates]))
    rows: list[Test | None] = []
    for one in found:
        if one is not None and one.estimate is not None:
            p, smallest = next(adjusted), one.estimate.detectable(len(estimates))
            one = replace(one, p=p, smallest=smallest)
        rows.append(one)
    return rows


def _compare_rows(table: Table, row: Row, options: ReportOptions, scores: SavedScores) -> Test | None:
    """A row and its opponent on equal seeds and splits, before the correction over the table."""
    opponent, metric = table.opponent(row, options.reference), table.metric
    if opponent is None or not row.values(metric):
        return None
    ours, theirs = ({run.unit: run for run in one.runs if run.metric(metric) is not None} for one in (row, opponent))
    common = [unit for unit in ours if unit in theirs]
    values, others = row.values(metric), opponent.values(metric)
    differences = [values[unit] - others[unit] for unit in common]
    estimate = None
    if len(common) >= MIN_INTERVAL_RUNS:
        scale = max(abs(score) for each in (values, others) for score in each.values())
        runs = [[each[unit] for unit in common] for each in (ours, theirs)]
        if (share := share_of_splits(runs[0], metric)) is not None:
            estimate = estimate_over_splits(differences, [split_of(run, metric) for run in runs[0]], share, scale)
        else:
            known = [[scores.of(run, metric) for run in each] for each in runs]
            estimate = estimate_pairs(differences, known[0], known[1], scale)
    against = " ".join([opponent.label, *map(str, opponent.factors)])
    return Test(against, len(common), _mean_or_none(differences), estimate)


def _mean_or_none(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if values else None


def _find_chance(run: RunRecord, metric: str) -> float | None:
    """What the best constant prediction scores; runs record that on test, in the metric that selects the epoch."""
    return run.summary.chance if metric == f"test/{run.monitored}" else None


def _with_failures(row: Row, numbers: Sequence[float], chance: float | None) -> float | None:
    lost = sum(run.status in AT_CHANCE for run in row.runs)
    return None if not lost or chance is None else _mean_or_none([*numbers, *([chance] * lost)])


def _count_statuses(row: Row, metric: str) -> dict[str, int]:
    """Status -> number of runs of a row."""
    words = [
        f"ok without {metric}" if run.status == "ok" and run.metric(metric) is None else run.status for run in row.runs
    ]
    return dict(Counter([*words, *(["missing"] * len(row.missing))]))


def _list_remarks(row: Row, metric: str, chance: float | None) -> list[str]:
    """Remarks on a row: failed, missing and repeated runs, and several code versions."""
    lost: dict[str, list[RunRecord]] = defaultdict(list)
    for run in row.runs:
        if run.status != "ok":
            lost[f"{run.status}{f' ({run.error})' if run.error else ''}"].append(run)
        elif run.metric(metric) is None:
            lost[f"without {metric}"].append(run)
    notes = [
        f"seed{'s' * (len(runs) > 1)} {', '.join(str(run.unit[0]) for run in runs)} {how}: "
        f"{', '.join(run.name for run in runs)}"
        for how, runs in lost.items()
    ]
    notes += [f"planned, but left no readable run: {job}" for job in row.missing]
    notes += [_repeated_note(row, run, metric) for run in row.repeated]
    if chance is None and any(run.status in AT_CHANCE for run in row.runs):
        notes.append(f"no run of this table records the chance of {metric}, so no mean includes the failed runs")
    commits = dict.fromkeys(str(run.summary.git_commit) for run in row.runs if run.status == "ok")
    if len(commits) > 1:
        notes.append(f"runs of different versions of the code: {', '.join(commits)}")
    return notes


def _repeated_note(row: Row, run: RunRecord, metric: str) -> str:
    """The remark on a run whose seed and split another run has too."""
    first = next(other for other in row.runs if other.unit == run.unit)
    ours, theirs = first.metric(metric), run.metric(metric)
    result = "the same result" if ours == theirs else f"another result, {format_value(theirs, metric)}"
    outcome = run.status if theirs is None else result
    return f"seed {run.unit[0]} was run again: {first.name} counts, {run.name} does not ({outcome})"


def _compare_cost(row: Row, base: Row | None, count_of: Callable[[RunRecord], int | None]) -> RelativeCost:
    """The median of a count over a row's runs, and its ratio to `base`."""
    ours, theirs = (_median_or_none([count_of(run) for run in of.runs]) if of else None for of in (row, base))
    return RelativeCost(ours, ours / theirs if ours is not None and theirs else None)


def _compare_speed(row: Row, base: Row | None) -> RelativeCost:
    """Samples per second in training; the ratio compares runs on equal machines only."""
    ours = _median_or_none([run.summary.samples_per_second for run in row.runs])
    if base is None:
        return RelativeCost(ours, None)
    for place in dict.fromkeys(map(machine, row.runs)):
        here, there = (
            _median_or_none([run.summary.samples_per_second for run in of.runs if machine(run) == place])
            for of in (row, base)
        )
        if here is not None and there:
            return RelativeCost(ours, here / there)
    return RelativeCost(ours, None)


def machine(run: RunRecord) -> str:
    """Machine and trainer options; the speeds of two runs are comparable if these are equal."""
    return str([run.summary.machine, *(run.options.get(name) for name in MACHINE_OPTIONS)])


def _median_or_none(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def _compute_interval(row: Row, metric: str, scores: SavedScores) -> tuple[Interval | None, str]:
    """The interval of the mean, cut off at the metric's bounds, and a remark if it is over seeds for a reason.

    Fewer than three runs, and equal results that show no spread, have none.
    """
    runs = [run for run in row.runs if run.metric(metric) is not None]
    scored = [scores.of(run, metric) for run in runs]
    remark = next((scores.faults[run.folder] for run in runs if run.folder in scores.faults), "")
    known = [one for one in scored if one is not None]
    values = [*row.values(metric).values()]
    if (share := share_of_splits(runs, metric)) is not None:
        estimate = estimate_over_splits(values, [split_of(run, metric) for run in runs], share)
    else:
        estimate = estimate_runs(values, scored)
        if len(known) == len(runs) and any(not np.array_equal(ids, known[0][0]) for ids, _ in known):
            remark = "its runs were scored on different examples, so its interval is over seeds"
    if estimate is None or not estimate.variance or len(runs) < MIN_INTERVAL_RUNS:
        return None, remark
    found, (low, high) = estimate.interval(), metric_bounds(metric)
    return replace(found, low=max(low, found.low), high=min(high, found.high)), remark


def _find_published(row: Row) -> tuple[Published | None, list[str]]:
    """The published cell that the row's runs name, and remarks if they name several or an unknown one."""
    ended = [run for run in row.runs if run.status == "ok" and run.summary.published]
    named: dict[PublishedResult, list[RunRecord]] = {}
    remarks: list[str] = []
    for run in ended:
        try:
            named.setdefault(find_published(run.summary.published or {}), []).append(run)
        except (ValueError, TypeError, AttributeError) as error:
            remarks.append(f"{run.name}: {error}")
    if len(named) > 1:
        remarks.append(f"its runs name several cells, so none is shown: {', '.join(str(r.cell) for r in named)}")
    if len(named) != 1:
        return None, remarks
    result, runs = next(iter(named.items()))
    ours = _mean_or_none([value for run in runs if (value := run.metric(result.cell.metric)) is not None])
    reasons = dict.fromkeys(reason for run in runs for reason in _list_obstacles(run, result))
    return Published((result, *_same_setting(result)), ours, tuple(reasons)), remarks


def _list_obstacles(run: RunRecord, result: PublishedResult) -> list[str]:
    """Why a run cannot be compared with a published number."""
    trial = ["a trial of a few batches"] if run.options.get("trainer.fast_dev_run") else []
    return [*find_obstacles(run.summary, result), *trial]


def _same_setting(result: PublishedResult) -> list[PublishedResult]:
    """The results of other tables and papers for the same task, attention, variant and metric."""

    def setting(other: PublishedResult) -> tuple[Any, ...]:
        return other.cell.task, other.cell.attention, other.cell.variant, other.cell.metric

    return [
        other for other in published_results().values() if other is not result and setting(other) == setting(result)
    ]
