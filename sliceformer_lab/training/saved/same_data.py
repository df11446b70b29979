"""Compares the data and the user's code of a run with those that it was trained with."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from sliceformer_lab.config.checked import RunPlan
from sliceformer_lab.config.plain_checks import own_paths
from sliceformer_lab.data.base import DataModule
from sliceformer_lab.data.sequences.tokenizer import TOKENIZER_FILE
from sliceformer_lab.data.series.coding import CODING_FILE
from sliceformer_lab.errors import DataError
from sliceformer_lab.runs.folder import known_summary, read_config, recorded_data, recorded_digests
from sliceformer_lab.runs.sources import own_code_digest
from sliceformer_lab.runs.tuned import tuned_on
from sliceformer_lab.training.results.prediction_table import PREPROCESSING, read_preprocessing

log = logging.getLogger(__name__)

DRAWN_ANEW = (
    "; test examples that are drawn from all rows may be ones that it was trained on, and the others are not scored: "
    "give a test folder, a test file or a column of splits"
)
NAMES = {"train": "training", "val": "validation", "test": "test"}


def check_same_data(plan: RunPlan, folder: Path, data: DataModule) -> list[str]:
    """The splits that changed since the run was started, if `changed_data=accept` allows that. Prepares the data.

    Raises DataError for changed data otherwise.
    """
    if (changed := changed_splits(folder, data)) and plan.changed_data != "accept":
        files = ", ".join(path for place, path in own_paths(plan.plain).items() if place.startswith("data."))
        raise DataError(
            f"{describe_splits(changed)} of {folder} have changed since it was trained ({files or 'data.root'}); put "
            "the earlier data back, train a new run, or go on with changed_data=accept, which the summary records"
        )
    return warn_of_changes(folder, data)


def warn_of_other_code(folder: Path) -> None:
    """Warns if the user's own code has changed since it trained the model of a run folder."""
    summary = known_summary(folder)
    _, is_own, trained = (summary.git_commit or "" if summary else "").partition("+")
    if is_own and (now := own_code_digest(read_config(folder))) not in ("", trained):
        log.warning(
            f"WARNING: your own code has changed since {folder} was trained, so its model may compute other outputs "
            f"(version {trained}, now {now})"
        )


def check_tuned_on(plan: RunPlan, folder: Path, data: DataModule) -> list[str]:
    """A remark if the values of `optim=tuned:` were tuned on other data and `changed_data=accept` allows that.

    Raises DataError otherwise, but for a run that was allowed it when it began.
    """
    own = tuned_on(plan.names.task, data.fingerprint()["sha256"]) if plan.tuned_on else None
    if plan.tuned_on == own:
        return []
    remark = f"the values of optim=tuned: were tuned on {plan.tuned_on}, and the task and data of this run are {own}"
    if plan.changed_data != "accept" and not recorded_digests(folder):
        raise DataError(f"{remark}; tune on these data, or take the values to them with changed_data=accept")
    return [remark]


def check_unchanged(folder: Path, data: DataModule) -> None:
    """Prepares the data. Raises DataError if they, or the ids of their tokens, are others than those of a run."""
    data.digests()  # of a run that recorded none too
    if changed := changed_splits(folder, data):
        raise DataError(
            f"{describe_splits(changed)} have changed since {folder} was trained; put the earlier data back"
        )
    check_recorded_encoding(folder, data)


def check_recorded_encoding(folder: Path, data: DataModule) -> None:
    """Raises DataError if tokens of the data have other ids than those that the model in a run folder reads."""
    if state := recorded_data(folder):
        data.check_encoding(state)


def check_saved_encoder(folder: Path, data: DataModule) -> None:
    """Raises DataError if what a run folder has to encode inputs and name outputs is not that of its checkpoint.

    The data may be gone.
    """
    if (folder / TOKENIZER_FILE).is_file() or (folder / CODING_FILE).is_file():
        check_recorded_encoding(folder, data)
    saved, trained = read_preprocessing(folder), recorded_data(folder).get("names")
    if saved and trained and [list(saved[1].classes[: len(trained[0])]), list(saved[1].targets)] != trained:
        raise DataError(
            f"{folder / PREPROCESSING} names other classes or targets than the checkpoint; put the run's own file back"
        )


def warn_of_changes(folder: Path, data: DataModule) -> list[str]:
    """The splits that changed since the run was trained, which a warning names."""
    if changed := changed_splits(folder, data):
        drawn = DRAWN_ANEW if {"train", "test"} <= set(changed) else ""
        log.warning(f"WARNING: {describe_splits(changed)} differ from those that {folder} was trained on{drawn}")
    return changed


def changed_splits(folder: Path, data: DataModule) -> list[str]:
    """The splits whose examples or labels are others than those that a run has recorded: train, val, test."""
    before = recorded_digests(folder)
    now = data.digests() if before else {}
    return [split for split in NAMES if before.get(split) != now.get(split)]


def describe_splits(splits: Sequence[str]) -> str:
    """Such as "the training, validation and test data"."""
    *first, last = (NAMES[split] for split in splits)
    return f"the {' and '.join(filter(None, [', '.join(first), last]))} data"
