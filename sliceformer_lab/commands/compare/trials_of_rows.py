"""The results of a comparison's trials: their scores, the chosen values of each row, and which rows have learned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from sliceformer_lab.commands.compare.compare_options import POSITION_ROWS
from sliceformer_lab.commands.compare.compare_rows import ComparedRow
from sliceformer_lab.commands.compare.examples import ExampleScores
from sliceformer_lab.commands.compare.search import Point, Points, Trial, chosen_trial, to_digits
from sliceformer_lab.data.spec import DataSpec
from sliceformer_lab.errors import DataError
from sliceformer_lab.measures.statistics import LEVEL, estimate_over_seeds
from sliceformer_lab.runs.collect import RunRecord, known_run, known_runs
from sliceformer_lab.runs.job_state import state_of
from sliceformer_lab.runs.sweep import PlannedJob
from sliceformer_lab.runs.tuned import tuned_on
from sliceformer_lab.training.goal import Goal
from sliceformer_lab.training.saved.same_data import NAMES, describe_splits


@dataclass(frozen=True)
class Tuning:
    """The trials of every row, and the one that each row reports."""

    points: Points
    trials: Mapping[str, tuple[Trial, ...]]
    chosen: Mapping[str, Trial | None]
    learned: Mapping[str, bool]  # whether some trial of a row is above the constant predictor
    at_edge: Mapping[str, bool]
    weaker: Mapping[str, str]  # rows that only differ in positions from a better one, with the reason


def tuning_of(
    folder: Path, rows: Sequence[ComparedRow], points: Points, wanted: Goal, scores: ExampleScores, *, decided: bool
) -> Tuning:
    """The trials as their folders show them: with the tuning seeds, and once it is `decided`, the deciding seed too.

    Whether a row has learned depends on the tuning seeds only.
    """
    first = _trials_of(folder, rows, points, wanted, with_deciding=False)
    trials = _trials_of(folder, rows, points, wanted, with_deciding=True) if decided else first
    chosen = {row.name: chosen_trial(trials[row.name], wanted.sign, row.own_rate) for row in rows}
    return Tuning(
        points,
        trials,
        chosen,
        {row.name: _has_learned(folder, row, first[row.name], wanted, scores) for row in rows},
        {name: one is not None and points.side_of(one.point) is not None for name, one in chosen.items()},
        weaker_positions({row.name: chosen[row.name] for row in rows[1:]}, wanted.sign),
    )


def _trials_of(
    folder: Path, rows: Sequence[ComparedRow], points: Points, wanted: Goal, *, with_deciding: bool
) -> dict[str, tuple[Trial, ...]]:
    """The trials of each row. A run that diverged or ended below chance counts as chance.

    Where chance is unknown, the worst finished run of all rows takes its place.
    """
    values = {
        row.name: [
            [
                _read_validation(folder, row.trial(point, seed))
                for seed in (tried_seeds(folder, row, point) if with_deciding else row.options.tuning_seeds)
            ]
            for point in points.points
        ]
        for row in rows
    }
    finished = [value for found in values.values() for point in found for value in point if value is not None]
    chance = _chance_accuracy(rows[0].spec, wanted)
    worst = chance if chance is not None else min(finished, key=lambda value: wanted.sign * value, default=0.0)

    def trial(point: Point, found: Sequence[float | None]) -> Trial:
        known = [worst if value is None or wanted.sign * (value - worst) < 0 else value for value in found]
        return Trial(point, tuple(known), lost=sum(value is None for value in found))

    return {
        name: tuple(trial(point, found) for point, found in zip(points.points, each, strict=True))
        for name, each in values.items()
    }


def weaker_positions(chosen: Mapping[str, Trial | None], sign: float) -> dict[str, str]:
    """The compared rows of mha except the one whose positions are best on validation; a tie goes to rope."""
    means = {name: to_digits(sign * trial.mean) for name in POSITION_ROWS if (trial := chosen.get(name)) is not None}
    best = max(means, key=lambda name: means[name], default=None)
    return {name: f"{best} has the stronger positions on validation" for name in means if name != best}


def tried_seeds(folder: Path, row: ComparedRow, point: Point) -> list[int]:
    """The seeds of a trial: the tuning seeds, and the deciding one where its run has ended."""
    decided = state_of(folder / row.trial(point, row.options.deciding_seed).name).is_final
    return [*row.options.tuning_seeds, *([row.options.deciding_seed] if decided else [])]


def data_of_runs(folder: Path, task: str) -> str | None:
    """What the runs in a folder have read, as `tuned_on` has it; None if none has finished."""
    found = [run.protocol.sha256 for run in known_runs(folder) if run.protocol.sha256]
    return tuned_on(task, found[0]) if found else None


def check_one_data(folder: Path, prefix: str = "") -> None:
    """Raises DataError if two runs in a folder with one split seed have different examples, as if the data changed.

    Only runs whose names begin with `prefix` are read.
    """
    first: dict[tuple[Any, str], RunRecord] = {}
    for run, split in product(known_runs(folder, prefix), NAMES):
        if (digest := run.summary.digests.get(split)) is None:
            continue
        other = first.setdefault((run.unit[1], split), run)
        if other.summary.digests.get(split) != digest:
            raise DataError(
                f"{other.name} and {run.name} in {folder} differ in {describe_splits([split])}, so they are not "
                "compared; put the data back and delete the runs on others, or choose another folder="
            )


def best_way(folder: Path, row: ComparedRow, point: Point, wanted: Goal) -> tuple[tuple[str, ...], dict[str, float]]:
    """The way to equal parameters with the best mean on validation, and the mean of each; a tie goes to the first."""
    means: dict[tuple[str, ...], float] = {}
    for way in row.ways:
        found = [_read_validation(folder, row.trial(point, seed, way)) for seed in row.options.tuning_seeds]
        known = [value for value in found if value is not None]
        if known and len(known) == len(found):
            means[way] = sum(known) / len(known)
    best = max(means, key=lambda way: to_digits(wanted.sign * means[way]), default=row.ways[0])
    return best, {" ".join(way) or "as configured": mean for way, mean in means.items()}


def _has_learned(folder: Path, row: ComparedRow, trials: Sequence[Trial], wanted: Goal, scores: ExampleScores) -> bool:
    """Whether some trial is above the constant predictor on validation, by one-sided intervals over examples and seeds.

    Together they cover 95 %, so each of k trials has a level of 5 % / k. Without predictions they are over seeds.
    """
    chance = _chance_accuracy(row.spec, wanted)
    for one in trials:
        if not one.usable:
            continue
        jobs = [row.trial(one.point, seed) for seed in row.options.tuning_seeds]
        runs = [run for job in jobs if (run := known_run(folder / job.name)) is not None and run.status == "ok"]
        estimate = scores.above_constant(runs, f"val/{wanted.monitor}", wanted.sign, len(jobs))
        if estimate is None and chance is None:
            return True
        estimate = estimate or estimate_over_seeds([wanted.sign * (value - (chance or 0.0)) for value in one.scores])
        if estimate is not None and estimate.lower_limit(LEVEL / len(trials)) > 0:
            return True
    return False


def _read_validation(folder: Path, job: PlannedJob) -> float | None:
    state = state_of(folder / job.name)
    return state.value if state.status == "ok" else None


def _chance_accuracy(spec: DataSpec, wanted: Goal) -> float | None:
    """The accuracy of a model that has learned nothing; None for other metrics."""
    if spec.chance is not None:
        return float(spec.chance)
    return 1 / spec.num_classes if wanted.monitor == "accuracy" and spec.num_classes else None
