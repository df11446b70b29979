"""Compares the data of a run with those that it was trained on."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

from sliceformer_lab.config.checked import RunPlan
from sliceformer_lab.config.plain_checks import own_paths
from sliceformer_lab.data.base import DataModule
from sliceformer_lab.errors import DataError
from sliceformer_lab.runs.folder import recorded_digests

log = logging.getLogger(__name__)

NAMES = {"train": "training", "val": "validation", "test": "test"}


def changed_splits(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """The splits whose examples or labels differ between two data sets: train, val, test."""
    return [split for split in NAMES if before.get(split) != now.get(split)]


def sentence_of(changed: list[str]) -> str:
    """Such as "the training and validation data"."""
    return f"the {' and '.join(NAMES[split] for split in changed)} data"


def check_same_data(plan: RunPlan, folder: Path, data: DataModule) -> list[str]:
    """The splits that changed since the run was started, if `changed_data=accept` allows that. Prepares the data.

    Raises DataError for changed data otherwise.
    """
    changed = _changed(folder, data)
    if changed and plan.changed_data != "accept":
        files = ", ".join(path for place, path in own_paths(plan.plain).items() if place.startswith("data."))
        raise DataError(
            f"{sentence_of(changed)} of {folder} have changed since it was trained ({files or 'data.root'}); put the "
            "earlier data back, train a new run, or go on with changed_data=accept, which the summary records"
        )
    return warn_of_changes(folder, data)


def warn_of_changes(folder: Path, data: DataModule) -> list[str]:
    """The splits that changed since the run was trained, which a warning names."""
    if changed := _changed(folder, data):
        log.warning(f"WARNING: {sentence_of(changed)} are others than those that {folder} was trained on")
    return changed


def _changed(folder: Path, data: DataModule) -> list[str]:
    before = recorded_digests(folder)
    return changed_splits(before, data.digests()) if before else []
