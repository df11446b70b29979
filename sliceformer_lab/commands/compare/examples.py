"""The scores of single examples, from the saved predictions of runs, for variances over examples."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from sliceformer_lab.config.checked import RunPlan
from sliceformer_lab.measures.statistics import (
    Estimate,
    Scored,
    estimate_crossed,
    estimate_over_splits,
    estimate_pairs,
    jackknife_rows,
    jackknife_values,
)
from sliceformer_lab.runs.collect import RunRecord
from sliceformer_lab.runs.example_scores import example_scores, read_predictions, share_of_splits
from sliceformer_lab.training.build import build_data, build_task
from sliceformer_lab.training.interfaces import TaskModule


class ExampleScores:
    """Scores the saved predictions of the runs of one task."""

    def __init__(self, plan: RunPlan) -> None:
        self._plan = plan
        self._known: dict[tuple[str, str], Scored | None] = {}

    def of(self, run: RunRecord, metric: str) -> Scored | None:
        """Values whose mean is the metric: scores of single examples, or the jackknife's of groups of examples.

        None without predictions, and if these do not reproduce the recorded metric.
        """
        key = str(run.folder), metric
        if key not in self._known:
            self._known[key] = example_scores(run, metric) or self._score_by_jackknife(run, metric)
        return self._known[key]

    def above_constant(self, runs: Sequence[RunRecord], metric: str, sign: float, num_seeds: int) -> Estimate | None:
        """How far `num_seeds` runs are above a constant prediction on a split; None without predictions.

        A seed without a run counts as the constant. None for a single example too.
        """
        found = []
        for run in runs:
            values, arrays = self.of(run, metric), _read_answers(run, metric)
            if values is None or arrays is None:
                return None
            ids, targets, _ = arrays
            targets = targets[ids.argsort(kind="stable")]
            constant: np.ndarray | float = self._task.chance(torch.from_numpy(targets))
            if metric.endswith("/accuracy") and targets.ndim == 1 and len(values[1]) == len(targets):
                constant = targets == np.bincount(targets).argmax()
            found.append(sign * (values[1] - constant))
        if not found or len({len(one) for one in found}) > 1 or len(found[0]) < 2:
            return None
        return estimate_crossed(np.stack([*found, *[np.zeros_like(found[0])] * (num_seeds - len(found))]))

    @cached_property
    def _task(self) -> TaskModule:
        return build_task(self._plan, build_data(self._plan).spec)

    def _score_by_jackknife(self, run: RunRecord, metric: str) -> Scored | None:
        arrays, recorded = _read_answers(run, metric), run.metric(metric)
        if arrays is None or recorded is None:
            return None
        ids, targets, outputs = arrays
        order = ids.argsort(kind="stable")
        ids, truth, output = ids[order], torch.from_numpy(targets[order]), torch.from_numpy(outputs[order])
        name = metric.removesuffix("_best_test_epoch").partition("/")[2]
        try:
            measure = self._task.build_metrics()[name]

            def score(rows: Tensor | slice) -> float:
                measure.reset()
                measure.update(output[rows], truth[rows])
                return float(measure.compute())

            whole = score(slice(None))
            if not math.isclose(whole, recorded, rel_tol=1e-3, abs_tol=1e-6):
                return None
            without = [score(rows) for rows in torch.from_numpy(jackknife_rows(len(ids)))]
        except (KeyError, ValueError, RuntimeError):  # predictions that the metric does not take as they were saved
            return None
        return ids, jackknife_values(whole, without)


def paired_estimate(
    scores: ExampleScores,
    ours: Mapping[int, RunRecord],
    theirs: Mapping[int, RunRecord],
    differences: Mapping[int, float],
    metric: str,
) -> Estimate | None:
    """The mean of paired differences by seed, with its variance over seeds and examples where all runs have both.

    Where each seed has a split of its own, it is over splits.
    """
    scale = max((abs(run.metric(metric) or 0.0) for runs in (ours, theirs) for run in runs.values()), default=0.0)
    if (share := share_of_splits(ours.values(), metric)) is not None:
        return estimate_over_splits([*differences.values()], [*differences], share, scale)
    known = [
        [scores.of(runs[seed], metric) if seed in runs else None for seed in differences] for runs in (ours, theirs)
    ]
    return estimate_pairs(list(differences.values()), known[0], known[1], scale)


def _read_answers(run: RunRecord, metric: str) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    found = read_predictions(run.folder, metric.partition("/")[0])
    return None if found is None else (found["ids"], found["targets"], found["logits"])
