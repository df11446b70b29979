"""The scores of single examples, from the predictions that a run has saved."""

from __future__ import annotations

import math
import zipfile

import numpy as np

from sliceformer_lab.runs.collect import RunRecord
from sliceformer_lab.runs.folder import PREDICTIONS


def example_scores(run: RunRecord, metric: str) -> tuple[np.ndarray, np.ndarray] | None:
    """Ids and scores (E,) of single examples, if the metric is their mean: accuracy, or mean absolute error.

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
    else:
        return None
    order = np.argsort(ids, kind="stable")
    recorded = run.metric(metric)
    agrees = recorded is not None and len(ids) and math.isclose(scores.mean(), recorded, rel_tol=1e-3, abs_tol=1e-6)
    return (ids[order], scores[order]) if agrees else None
