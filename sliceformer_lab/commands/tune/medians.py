"""The medians that prune=median compares a trial with: of the validation scores of earlier trials, by epoch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from sliceformer_lab.runs.folder import read_metrics
from sliceformer_lab.training.goal import Goal

FEWEST = 3  # trials; a median of fewer ends no trial


def median_curve(folders: Sequence[Path], goal: Goal) -> dict[str, float]:
    """The median over finished runs of the best score until each epoch, by epoch; none for fewer than three runs."""
    curves = [curve for folder in folders if (curve := best_so_far(folder, goal)) is not None]
    if not curves:
        return {}
    table = pd.concat(curves, axis=1)
    table = table[table.notna().sum(axis=1) >= FEWEST]
    return {str(epoch): float(value) for epoch, value in zip(table.index, table.median(axis=1), strict=True)}


def best_so_far(folder: Path, goal: Goal) -> pd.Series | None:
    """The best validation score until each epoch of a run; None without a readable log."""
    metric = f"val/{goal.monitor}"
    try:
        logged = read_metrics(folder)
        values = logged[["epoch", metric]].dropna().astype({"epoch": int}).groupby("epoch")[metric].last()
    except (OSError, KeyError, ValueError):
        return None
    return values.cummax() if goal.mode == "max" else values.cummin()
