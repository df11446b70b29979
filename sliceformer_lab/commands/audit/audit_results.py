"""What the run folders of an audit say: reporting runs, pairs, verdicts, and the ledger."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from sliceformer_lab.commands.audit.audit_options import AuditOptions, Axis
from sliceformer_lab.commands.audit.audit_rows import Row
from sliceformer_lab.commands.audit.declaration import Declaration, Margin
from sliceformer_lab.commands.audit.reference_scores import reference_scores
from sliceformer_lab.commands.audit.step_times import Times
from sliceformer_lab.commands.audit.tuning_results import Tuning
from sliceformer_lab.commands.audit.verdicts import Outcome, Pairs, outcomes
from sliceformer_lab.errors import RunFolderError
from sliceformer_lab.runs.collect import RunRecord
from sliceformer_lab.runs.example_scores import example_scores
from sliceformer_lab.runs.folder import read_summary
from sliceformer_lab.runs.job_state import state_of
from sliceformer_lab.runs.ledger import Evaluation, append_ledger, read_ledger
from sliceformer_lab.runs.names import digest
from sliceformer_lab.runs.sweep import PlannedJob
from sliceformer_lab.training.goal import Goal


@dataclass(frozen=True)
class AxisResult:
    """The reporting runs of one axis and the verdicts from them."""

    axis: Axis
    runs: Mapping[str, Mapping[int, RunRecord]]  # by attention and seed
    scores: Mapping[str, Mapping[int, float]]  # test scores; a lost run has chance where it is known
    lost: Mapping[str, tuple[str, ...]]  # why runs failed or diverged
    outcomes: tuple[Outcome, ...]
    obstacle: str | None  # why there is no verdict at all

    def mean(self, attention: str) -> float | None:
        """The mean test score of a row."""
        values = self.scores.get(attention) or {}
        return fmean(values.values()) if values else None


@dataclass(frozen=True, eq=False)
class Audit:
    """An audit whose runs have ended."""

    folder: Path  # of the runs
    options: AuditOptions
    declaration: Declaration
    goal: Goal
    margin: Margin
    rows: tuple[Row, ...]
    refused: Mapping[str, str]  # attentions that take no part, with the reason
    tuning: Tuning
    times: Times | None

    @property
    def task(self) -> str:
        """The name of the task."""
        return str(self.rows[0].config["names"]["task"])

    @property
    def metric(self) -> str:
        """The metric of the reporting runs."""
        return f"test/{self.goal.monitor}"

    @cached_property
    def results(self) -> tuple[AxisResult, ...]:
        """The result of each axis."""
        return tuple(self._result(axis) for axis in self.options.axes)

    @property
    def obstacle(self) -> str | None:
        """Why the audit has no verdict; None if some comparison of some axis has one."""
        found = [(result.obstacle, one) for result in self.results for one in result.outcomes]
        if any(one.verdict is not None for _, one in found):
            return None
        return next((reason or f"{one.against}: {one.reason}" for reason, one in found), "nothing was compared")

    @cached_property
    def runs(self) -> list[RunRecord]:
        """All reporting runs that have a summary, once each."""
        found = [run for result in self.results for runs in result.runs.values() for run in runs.values()]
        return list({run.folder: run for run in found}.values())

    @cached_property
    def references(self) -> list[dict[str, Any]]:
        """The models without a network on the same split, the strongest last."""
        seconds = sum(run.number("processor_seconds") or 0.0 for run in self.runs)
        finished = [run for run in self.runs if run.status == "ok"]
        return reference_scores(finished[0].folder, seconds) if finished else []

    def record_evaluations(self) -> None:
        """Append the test evaluations of this audit to the ledger beside the data."""
        data = Path(self.rows[0].config["paths"]["data"])
        words = {row.attention: _options_digest(row) for row in self.rows}
        append_ledger(
            data,
            [
                Evaluation(
                    self.task,
                    str(run.protocol.get("sha256")),
                    run.attention,
                    words[run.attention],
                    int(run.summary["seed"]),
                    run.folder.name,
                    run.summary.get("git_commit"),
                    run.started,
                )
                for run in self.runs
                if run.metric(self.metric) is not None
            ],
        )

    @cached_property
    def evaluations(self) -> list[Evaluation]:
        """All recorded evaluations of this test set, of any audit."""
        prints = {str(run.protocol.get("sha256")) for run in self.runs if run.protocol}
        data = Path(self.rows[0].config["paths"]["data"])
        return [one for one in read_ledger(data) if one.fingerprint in prints]

    @property
    def changed_after_looking(self) -> list[str]:
        """The rows whose test scores with other options were in the ledger before this audit was declared."""
        own = {row.attention: _options_digest(row) for row in self.rows}
        return sorted(
            {
                one.row
                for one in self.evaluations
                if one.row in own and one.options != own[one.row] and one.time < self.declaration.time
            }
        )

    def _result(self, axis: Axis) -> AxisResult:
        jobs = {
            row.attention: {
                seed: row.reporting(axis, trial.point, seed)
                for seed in self.options.reporting_seeds
                if (trial := self.tuning.chosen[row.attention]) is not None and axis not in row.refused
            }
            for row in self.rows
        }
        runs: dict[str, dict[int, RunRecord]] = {name: {} for name in jobs}
        lost: dict[str, tuple[str, ...]] = {}
        for name, planned in jobs.items():
            reasons = []
            for seed, job in planned.items():
                state = state_of(self.folder / job.name)
                if (record := _record(self.folder / job.name)) is not None:
                    runs[name][seed] = record
                if state.status != "ok":
                    reasons.append(f"seed {seed} {state.status}: {state.error}")
            lost[name] = tuple(reasons)
        scores = {name: self._scores(jobs[name], runs[name], lost[name]) for name in jobs}
        obstacle = self._axis_obstacle(axis, runs, scores)
        family = [self._pairs(axis, other, runs, scores, obstacle) for other in self.options.against]
        return AxisResult(axis, runs, scores, lost, tuple(outcomes(family)), obstacle)

    def _scores(
        self, jobs: Mapping[int, PlannedJob], runs: Mapping[int, RunRecord], lost: Sequence[str]
    ) -> dict[int, float]:
        """Test scores by seed. A row without any finished run has none; its lost runs count as chance otherwise."""
        known = {seed: value for seed, run in runs.items() if (value := run.metric(self.metric)) is not None}
        chances = [value for run in runs.values() if (value := run.number("chance")) is not None]
        if known and lost and chances:
            known |= {seed: chances[0] for seed in jobs if seed not in known}
        return dict(sorted(known.items()))

    def _axis_obstacle(
        self, axis: Axis, runs: Mapping[str, Mapping[int, RunRecord]], scores: Mapping[str, Mapping[int, float]]
    ) -> str | None:
        subject = self.options.subject
        if not scores[subject]:
            row = next(row for row in self.rows if row.attention == subject)
            return row.refused.get(axis) or f"no run of {subject} finished"
        prints = {run.protocol.get("sha256") for row in runs.values() for run in row.values() if run.protocol}
        return f"the runs have {len(prints)} data fingerprints" if len(prints) > 1 else None

    def _pairs(
        self,
        axis: Axis,
        other: str,
        runs: Mapping[str, Mapping[int, RunRecord]],
        scores: Mapping[str, Mapping[int, float]],
        obstacle: str | None,
    ) -> Pairs:
        subject, sign = self.options.subject, self.goal.sign
        theirs = scores.get(other, {})
        obstacle = obstacle or self.refused.get(other) or self._row_obstacle(axis, other, bool(theirs))
        ours = scores[subject]
        if obstacle is None and not any(map(self._has_learned, (runs[subject], runs[other]))):
            obstacle = "neither has learned anything"
        differences = {seed: sign * (ours[seed] - theirs[seed]) for seed in ours if seed in theirs}
        return Pairs(
            other,
            {} if obstacle else differences,
            self.margin.of(fmean(theirs.values()) if theirs else None),
            _example_differences(runs[subject], runs.get(other, {}), differences, self.metric, sign),
            self.tuning.at_edge[subject],
            self.tuning.at_edge.get(other, False),
            obstacle,
        )

    def _has_learned(self, runs: Mapping[int, RunRecord]) -> bool:
        """Whether the mean of a row is above chance, for accuracies by three standard errors of one test set."""
        known = [run for run in runs.values() if run.metric(self.metric) is not None]
        chance = next((value for run in known if (value := run.number("chance")) is not None), None)
        if chance is None:
            return True
        size = known[0].number("protocol", "num_test") if self.goal.monitor == "accuracy" else None
        error = (chance * (1 - chance) / size) ** 0.5 if size else 0.0
        mean = fmean(run.metric(self.metric) or 0.0 for run in known)
        return self.goal.sign * (mean - chance) > 3 * error

    def _row_obstacle(self, axis: Axis, other: str, has_scores: bool) -> str | None:
        row = next((row for row in self.rows if row.attention == other), None)
        if row is None or has_scores:
            return None
        if self.tuning.chosen[other] is None:
            return "no trial of it finished"
        return row.refused.get(axis) or "no reporting run of it finished"


def _options_digest(row: Row) -> str:
    """A hash of what the user chose for a row; what tuning chose is no part of it."""
    return digest(" ".join(sorted(word for word in row.words if not word.startswith("paths."))))


def _record(folder: Path) -> RunRecord | None:
    try:
        summary = read_summary(folder)
    except RunFolderError:  # refused before it began
        return None
    return RunRecord(folder, folder.name, summary, str(summary["status"]))


def _example_differences(
    ours: Mapping[int, RunRecord],
    theirs: Mapping[int, RunRecord],
    differences: Mapping[int, float],
    metric: str,
    sign: float,
) -> np.ndarray | None:
    """Differences (S, E) of single examples in favour of the subject; None unless all runs have them."""
    found = []
    for seed in differences:
        pair = [example_scores(runs[seed], metric) if seed in runs else None for runs in (ours, theirs)]
        if pair[0] is None or pair[1] is None or not np.array_equal(pair[0][0], pair[1][0]):
            return None
        found.append((pair[0][0], sign * (pair[0][1] - pair[1][1])))
    if not found or any(not np.array_equal(ids, found[0][0]) for ids, _ in found):
        return None
    return np.stack([each for _, each in found])
