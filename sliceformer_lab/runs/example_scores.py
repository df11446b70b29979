"""The scores of single examples, from the predictions that a run has saved."""

from __future__ import annotations

import math
import zipfile

import numpy as np

from sliceformer_lab.runs.collect import RunRecord
from sliceformer_lab.runs.folder import PREDICTIONS


def example_scores(run: RunRecord, metric: str) -> tuple[np.ndarray, np.ndarray] | None:
    """Ids and scores (E,) of single examples whose mean is the metric: accuracy, mean absolute error or mean IoU.

    None for any other metric, without predictions, and if the predictions do not reproduce the recorded value.
    """
    split, _, name = metric.removesuffix("_best_test_epoch").partition("/")
    try:
        with np.load(run.folder / PREDICTIONS) as arrays:
            ids, targets, outputs = (arrays[f"{split}_{part}"] for part in ("ids", "targets", "logits"))
    except (OSError, KeyError, ValueError, zipfile.BadZipFile):
        return None
    if name == "accuracy" and targets.ndim == 1 and outputs.ndim == 2:
        scores = (outputs.argmax(axis=1) == targets).astype(np.float64)
    elif name == "mae" and targets.shape == outputs.shape and not np.isnan(targets).any():
        scores = np.abs(outputs.astype(np.float64) - targets).reshape(len(ids), -1).mean(axis=1)
    elif name == "mean_iou" and targets.ndim == 3 and targets.shape == outputs.shape:
        scores = _shares_of_mean_iou(outputs, targets)
    else:
        return None
    order = np.argsort(ids, kind="stable")
    recorded = run.metric(metric)
    agrees = recorded is not None and len(ids) and math.isclose(scores.mean(), recorded, rel_tol=1e-3, abs_tol=1e-6)
    return (ids[order], scores[order]) if agrees else None


def _shares_of_mean_iou(predicted: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """What each mask contributes to the mean IoU of masks (E, H, W), whose pixels below 0 have no class: (E,).

    An IoU is a ratio of sums over all masks, I / U, and no mean. Its linear part in the counts of one mask i is
    I / U + E (I_i - I / U U_i) / U. These have the ratio as their mean, and their spread is that of the delta method.
    """
    known = targets >= 0
    total = np.zeros(len(targets))
    classes = np.union1d(predicted[known], targets[known])
    for one in classes:
        found, true = (predicted == one) & known, (targets == one) & known
        both, either = (pixels.sum(axis=(1, 2), dtype=np.float64) for pixels in (found & true, found | true))
        ratio = both.sum() / either.sum()
        total += ratio + len(targets) * (both - ratio * either) / either.sum()
    return total / len(classes)
