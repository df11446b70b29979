"""The splits of a seed never change, and a share that takes no example, or all, is refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from sliceformer_lab.data.splits import hold_out, split_by_class, split_rows
from sliceformer_lab.errors import DataError

THREE_CLASSES = torch.tensor([0, 1, 2] * 10)
BY_CLASS = {
    "test": [7, 9, 12, 14, 19, 29],
    "val": [5, 6, 10, 17, 21, 28],
    "train": [22, 23, 0, 4, 16, 11, 1, 20, 13, 2, 24, 15, 25, 8, 27, 18, 3, 26],
}
ROWS = {"train": [12, 14, 3, 8, 4, 6, 1, 9, 7, 5], "val": [10, 11, 15, 13], "test": [17, 16, 2, 0]}


def test_a_seed_always_holds_out_these_examples() -> None:
    kept, held = hold_out(THREE_CLASSES, 0.2, 5, "set", "val")
    assert held.tolist() == [11, 28, 25, 15, 6, 2]
    assert kept.tolist() == [
        *(22, 18, 20, 13, 29, 12, 10, 24, 1, 7, 27, 17, 0, 23, 3, 16, 4, 21, 26, 19, 8, 5, 9, 14),
    ]


def test_a_seed_always_splits_by_class_like_this() -> None:
    rows = split_by_class(THREE_CLASSES, {"test": 0.2, "val": 0.25}, 5, "set")
    assert {stage: part.tolist() for stage, part in rows.items()} == BY_CLASS


def test_a_seed_always_splits_rows_like_this() -> None:
    stages = np.array([-1] * 10 + [0] * 6 + [2] * 2)
    rows = split_rows(stages, {"test": 0.2, "val": 0.25}, 5, "set")
    assert {stage: part.tolist() for stage, part in rows.items()} == ROWS


def test_published_validation_rows_are_not_added_to() -> None:
    rows = split_rows(np.array([0, 0, 1, 2, 0]), {"test": 0.0, "val": 0.5}, 1, "set")
    assert rows["val"].tolist() == [2] and rows["test"].tolist() == [3] and sorted(rows["train"]) == [0, 1, 4]


def test_shares_that_take_nothing_or_everything_are_refused_with_their_option() -> None:
    with pytest.raises(
        DataError, match=r"set: holding out 0.01 of 30 examples for val takes none; .*data.val_fraction"
    ):
        hold_out(THREE_CLASSES, 0.01, 0, "set", "val")
    with pytest.raises(DataError, match=r"holding out 0.9 of 3 examples for test takes 3; .*data.test_fraction"):
        hold_out(torch.arange(3), 0.9, 0, "set", "test")
    with pytest.raises(DataError, match="no example is left to train on"):
        split_rows(np.array([1, 2]), {"test": 0.0, "val": 0.0}, 0, "set")
