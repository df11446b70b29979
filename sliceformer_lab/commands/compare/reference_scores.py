"""The rows of a comparison without a network: simple models on the split of its runs."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

import torch

from sliceformer_lab.config.checked import check_config
from sliceformer_lab.runs.example_scores import read_predictions
from sliceformer_lab.runs.folder import read_config
from sliceformer_lab.training.build import build_data, build_task
from sliceformer_lab.training.results.predicted import TableRow
from sliceformer_lab.training.results.references import references
from sliceformer_lab.training.saved.same_data import check_unchanged

MIN_SECONDS = 1200.0  # a tenth of these is the time that the references always get

log = logging.getLogger(__name__)


def reference_scores(run: Path, seconds: float) -> list[TableRow]:
    """The references for a finished run's data, fitted within a tenth of these seconds, at least two minutes.

    The strongest comes last. Nothing if they cannot be computed: a reference must not end a comparison. Raises
    Interrupted at a signal.
    """
    try:
        predictions = {
            split: {name: torch.from_numpy(arrays[name]) for name in ("ids", "targets")}
            for split in ("val", "test")
            if (arrays := read_predictions(run, split)) is not None
        }
        plan = check_config(read_config(run))
        data = build_data(plan, run)
        check_unchanged(run, data)
        return references(plan, data, build_task(plan, data.spec), predictions, max(seconds, MIN_SECONDS))
    except Exception as error:
        log.warning(f"WARNING: there is no reference without a network ({type(error).__name__}: {error})")
        return []


def mean_references(by_split: Sequence[Sequence[TableRow]]) -> list[TableRow]:
    """The references of all splits with the means of their metrics, or why one of them was skipped on a split."""
    found: list[TableRow] = []
    for name in dict.fromkeys(row["name"] for rows in by_split for row in rows):
        rows = [row for each in by_split for row in each if row["name"] == name]
        metrics = [row["metrics"] for row in rows if "metrics" in row]
        if len(metrics) == len(by_split):
            found.append({"name": name, "metrics": {each: fmean(m[each] for m in metrics) for each in metrics[0]}})
        else:
            skipped = next((row["skipped"] for row in rows if "skipped" in row), "a split has no such reference")
            found.append({"name": name, "skipped": skipped})
    return found
