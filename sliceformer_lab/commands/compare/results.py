"""The results in the run folders of a comparison: reporting runs, paired differences and verdicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any

from sliceformer_lab.commands.compare.compare_options import Axis, CompareOptions
from sliceformer_lab.commands.compare.compare_rows import ComparedRow
from sliceformer_lab.commands.compare.declaration import Margin
from sliceformer_lab.commands.compare.equal_time import Times
from sliceformer_lab.commands.compare.examples import ExampleScores, paired_estimate
from sliceformer_lab.commands.compare.reference_scores import mean_references, reference_scores
from sliceformer_lab.commands.compare.search import Point
from sliceformer_lab.commands.compare.trials_of_rows import Tuning
from sliceformer_lab.commands.compare.verdicts import Outcome, Pairs, judge_rows
from sliceformer_lab.runs.collect import RunRecord, known_run, known_runs, moment
from sliceformer_lab.runs.job_state import state_of
from sliceformer_lab.runs.ledger import Evaluation, changed_options, read_ledger
from sliceformer_lab.training.goal import Goal

Runs = Mapping[str, Mapping[int, RunRecord]]  # by row and seed


@dataclass(frozen=True)
class AxisResult:
    """The reporting runs of one axis."""

    axis: Axis
    runs: Runs
    scores: Mapping[str, Mapping[int, float]]  # test scores; a diverged run has chance where it is known
    lost: Mapping[str, tuple[str, ...]]  # why runs diverged

    def mean(self, name: str) -> float | None:
        """The mean test score of a row."""
        values = self.scores.get(name) or {}
        return fmean(values.values()) if values else None


@dataclass(frozen=True, eq=False)
class Comparison:
    """A comparison whose runs have ended."""

    word: str  # the command: audit | tune
    folder: Path  # of the runs
    options: CompareOptions
    declaration: Mapping[str, Any]  # the content of audit.json or tune.json
    goal: Goal
    margin: Margin
    rows: tuple[ComparedRow, ...]
    refused: Mapping[str, str]  # rows that take no part, with the reason
    tuning: Tuning
    times: Times | None
    base_parameters: int | None  # of the model with mha; None: not compared
    way_scores: Mapping[str, Mapping[str, float]]  # validation of each way to equal parameters
    example_scores: ExampleScores = field(repr=False)

    @property
    def task(self) -> str:
        """The name of the task."""
        return self.rows[0].plan.names.task

    @property
    def metric(self) -> str:
        """The metric of the reporting runs."""
        return f"test/{self.goal.monitor}"

    @cached_property
    def results(self) -> tuple[AxisResult, ...]:
        """The result of each axis."""
        return tuple(self._read_axis(axis) for axis in self.options.axes)

    @cached_property
    def outcomes(self) -> list[Outcome]:
        """The verdict of each declared comparison."""
        family = {other: self._pairs_by_axis(other) for other in self.options.others}
        edges = [name for name, is_at in self.tuning.at_edge.items() if is_at]
        return judge_rows(family, self.tuning.at_edge[self.options.subject], edges)

    @property
    def obstacle(self) -> str | None:
        """The reason if no comparison has a verdict; else None."""
        if any(one.verdict is not None for one in self.outcomes):
            return None
        return next((f"{one.against}: {one.reason}" for one in self.outcomes), "nothing was compared")

    @cached_property
    def runs(self) -> list[RunRecord]:
        """All reporting runs that have a summary, once each."""
        found = [run for result in self.results for runs in result.runs.values() for run in runs.values()]
        return list({run.folder: run for run in found}.values())

    @cached_property
    def commits(self) -> list[str]:
        """The versions of the code of the trials and the reporting runs."""
        return sorted({run.summary.git_commit or "unknown" for run in known_runs(self.folder)})

    @cached_property
    def references(self) -> list[dict[str, Any]]:
        """The models without a network, the strongest last, with their mean over the splits of the runs."""
        seconds = sum(run.summary.processor_seconds or 0.0 for run in self.runs)
        by_split = {run.unit[1]: run.folder for run in self.runs if run.status == "ok"}
        return mean_references([reference_scores(folder, seconds) for folder in by_split.values()])

    @cached_property
    def evaluations(self) -> list[Evaluation]:
        """All recorded evaluations of the test sets of this comparison, by any command."""
        tests = {digest for run in self.runs if (digest := run.summary.digests.get("test")) is not None}
        data = Path(self.rows[0].plan.paths.data)
        return [one for one in read_ledger(data) if one.test_digest in tests]

    @cached_property
    def changed_after_looking(self) -> dict[str, list[str]]:
        """The attentions that were scored on this test set before the declaration, with the options changed since."""
        changed: dict[str, set[str]] = {}
        for one in self.evaluations:
            rows = [row for row in self.rows if row.plan.names.attention == one.attention]
            if rows and moment(one.time) < moment(self.declaration["time"]):
                found = [changed_options(one.options, row.plan.plain, row.free_options) for row in rows]
                nearest = min(found, key=lambda options: len(options))
                changed.setdefault(one.attention, set()).update(nearest)
        return {name: sorted(options) for name, options in sorted(changed.items()) if options}

    def untuned_scores(self, row: ComparedRow) -> tuple[list[float], int]:
        """The test scores of a row with its recipe's own values, and how many of its runs have none of their own."""
        runs, reasons = self._reported(row, self.options.axes[0], None)
        return list(self._score_by_seed(runs, reasons).values()), len(reasons)

    def _read_axis(self, axis: Axis) -> AxisResult:
        runs: dict[str, dict[int, RunRecord]] = {row.name: {} for row in self.rows}
        lost: dict[str, tuple[str, ...]] = {}
        scores: dict[str, dict[int, float]] = {}
        for row in self.rows:
            is_reported = self.tuning.learned[row.name] and row.name not in self.tuning.weaker
            trial = self.tuning.chosen[row.name] if is_reported else None
            reasons: list[str] = []
            if trial is not None and axis not in row.refused:
                runs[row.name], reasons = self._reported(row, axis, trial.point)
            lost[row.name] = tuple(reasons)
            scores[row.name] = self._score_by_seed(runs[row.name], reasons)
        return AxisResult(axis, runs, scores, lost)

    def _reported(self, row: ComparedRow, axis: Axis, point: Point | None) -> tuple[dict[int, RunRecord], list[str]]:
        """The reporting runs of a row with these values, by seed, and why others have no score."""
        runs, reasons = {}, []
        for seed in self.options.reporting_seeds:
            folder = self.folder / row.reporting(axis, point, seed).name
            state, record = state_of(folder), known_run(folder)
            if record is not None:
                runs[seed] = record
            if state.status not in ("ok", "planned"):  # a row that is not compared was never started
                reasons.append(f"seed {seed} {state.status}: {state.error}")
        return runs, reasons

    def _score_by_seed(self, runs: Mapping[int, RunRecord], lost: Sequence[str]) -> dict[int, float]:
        """Test scores by seed. A row without any finished run has none; its diverged runs count as chance otherwise."""
        known = {seed: value for seed, run in runs.items() if (value := run.metric(self.metric)) is not None}
        chances = [value for run in runs.values() if (value := run.summary.chance) is not None]
        if known and lost and chances:
            known |= {seed: chances[0] for seed in self.options.reporting_seeds if seed not in known}
        return dict(sorted(known.items()))

    def _pairs_by_axis(self, other: str) -> dict[str, Pairs]:
        """The pairs of a row on each axis; an obstacle that all axes share is one entry."""
        if reason := self.refused.get(other) or self._explain_unlearned(other) or self.tuning.weaker.get(other):
            return {"all": Pairs({}, None, obstacle=reason)}
        return {result.axis: self._pair_scores(result, other) for result in self.results}

    def _explain_unlearned(self, other: str) -> str | None:
        """Why no operators are compared where one of the two has not learned the task; None if both have."""
        subject, learned = self.options.subject, self.tuning.learned
        count = len(self.tuning.points.points)
        nothing = " and ".join(name for name in (subject, other) if not learned[name])
        return f"{nothing} did not learn at any of {count} rates" if nothing else None

    def _pair_scores(self, result: AxisResult, other: str) -> Pairs:
        subject, sign = self.options.subject, self.goal.sign
        ours, theirs = result.scores[subject], result.scores[other]
        protocols = [run.protocol for runs in result.runs.values() for run in runs.values()]
        prints = {protocol.sha256 for protocol in protocols if protocol.is_recorded}
        for row in self.rows:
            if row.name in (subject, other) and not result.scores[row.name]:
                return Pairs({}, None, obstacle=row.refused.get(result.axis) or f"every run of {row.name} diverged")
        if len(prints) > 1:
            return Pairs({}, None, obstacle=f"the runs have {len(prints)} data fingerprints")
        differences = {seed: sign * (ours[seed] - theirs[seed]) for seed in ours if seed in theirs}
        runs = result.runs[subject], result.runs[other]
        validation = f"val/{self.goal.monitor}"
        values = [{seed: run.metric(validation) for seed, run in each.items()} for each in runs]
        on_validation = {
            seed: sign * (a - b)
            for seed in differences
            if (a := values[0].get(seed)) is not None and (b := values[1].get(seed)) is not None
        }
        margin = self.margin.of(fmean(theirs.values()))
        return Pairs(
            differences,
            paired_estimate(self.example_scores, *runs, differences, self.metric),
            margin,
            on_validation=paired_estimate(self.example_scores, *runs, on_validation, validation),
        )
