"""What the trials of an audit say: their scores, the values that each row reports, and its sensitivity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sliceformer_lab.commands.audit.audit_rows import Row
from sliceformer_lab.commands.audit.sensitivity import Sensitivity, sensitivities
from sliceformer_lab.commands.audit.trial_points import Point, Points, Trial, chosen_trial, top_trial
from sliceformer_lab.runs.job_state import state_of
from sliceformer_lab.runs.sweep import PlannedJob
from sliceformer_lab.training.build import build_data
from sliceformer_lab.training.goal import Goal


@dataclass(frozen=True)
class Tuning:
    """The trials of every row, and the one that each row reports."""

    points: Points
    trials: Mapping[str, tuple[Trial, ...]]
    chosen: Mapping[str, Trial | None]
    at_edge: Mapping[str, bool]
    floor: float | None
    sensitivity: Mapping[str, Sensitivity]


def tuning_of(folder: Path, rows: Sequence[Row], points: Points, wanted: Goal) -> Tuning:
    """The trials as their folders show them. A run that failed, diverged or ended below chance counts as chance.

    Where chance is unknown, the worst finished run of all rows takes its place.
    """
    values = {
        row.attention: [
            [_validation(folder, row.trial(point, seed)) for seed in row.options.tuning_seeds]
            for point in points.points
        ]
        for row in rows
    }
    finished = [value for scores in values.values() for point in scores for value in point if value is not None]
    chance = _chance(rows[0].config, wanted)
    worst = chance if chance is not None else min(finished, key=lambda value: wanted.sign * value, default=0.0)

    def trial(point: Point, scores: Sequence[float | None]) -> Trial:
        known = [worst if value is None or wanted.sign * (value - worst) < 0 else value for value in scores]
        return Trial(point, tuple(known), lost=sum(value is None for value in scores))

    trials = {
        name: tuple(trial(point, scores) for point, scores in zip(points.points, found, strict=True))
        for name, found in values.items()
    }
    tops = {name: top_trial(found, wanted.sign) for name, found in trials.items()}
    return Tuning(
        points,
        trials,
        {name: chosen_trial(found, wanted.sign) for name, found in trials.items()},
        {name: top is not None and points.side_of(top.point) is not None for name, top in tops.items()},
        chance,
        sensitivities(trials, wanted.sign, chance),
    )


def _validation(folder: Path, job: PlannedJob) -> float | None:
    state = state_of(folder / job.name)
    return state.value if state.status == "ok" else None


def _chance(config: Mapping[str, Any], wanted: Goal) -> float | None:
    """The accuracy of a model that has learned nothing; None for other metrics."""
    spec = build_data(config).spec
    if spec.chance is not None:
        return float(spec.chance)
    return 1 / spec.num_classes if wanted.monitor == "accuracy" and spec.num_classes else None
