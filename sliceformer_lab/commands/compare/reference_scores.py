"""The non-neural rows of a comparison: simple models on the split of its runs."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import torch

from sliceformer_lab.config.checked import check_config
from sliceformer_lab.runs.example_scores import read_predictions
from sliceformer_lab.runs.folder import read_config
from sliceformer_lab.training.build import build_data, build_task
from sliceformer_lab.training.results.references import references
from sliceformer_lab.training.saved.same_data import check_unchanged

MIN_SECONDS = 1200.0  # a tenth of these is the time that the references always get

log = logging.getLogger(__name__)


def reference_scores(run: Path, seconds: float) -> list[dict[str, Any]]:
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
