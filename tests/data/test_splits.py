"""The splits of a seed never change, and a share that takes no example, or all, is refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from sliceformer_lab.data.splits import Stage, hold_out, split_by_class, split_rows
from sliceformer_lab.errors import DataError

THREE_CLASSES = torch.tensor([0, 1, 2] * 10)
BY_CLASS = {
    "test": [1, 8, 20, 21, 22, 24],
    "val": [2, 18, 19, 25, 27, 29],
    "train": [0, 4, 6, 12, 17, 9, 3, 10, 11, 15, 7, 14, 28, 26, 23, 5, 13, 16],
}
ROWS = {"train": [14, 10, 7, 3, 5, 9, 2, 1, 0, 6], "val": [13, 15, 11, 12], "test": [17, 16, 8, 4]}


def test_a_seed_always_splits_like_this() -> None:
    kept, held = hold_out(THREE_CLASSES, 0.2, 0, "set", "val")
    assert held.tolist() == [14, 13, 23, 27, 9, 25]
    assert kept.tolist() == [
        *(29, 4, 6, 21, 11, 12, 18, 22, 20, 26, 0, 10, 16, 7, 15, 2, 19, 8, 17, 24, 3, 1, 5, 28),
    ]
    by_class = split_by_class(THREE_CLASSES, {"test": 0.2, "val": 0.25}, 0, "set")
    assert {stage: part.tolist() for stage, part in by_class.items()} == BY_CLASS
    rows = split_rows(np.array([-1] * 10 + [0] * 6 + [2] * 2), {"test": 0.2, "val": 0.25}, 0, "set")
    assert {stage: part.tolist() for stage, part in rows.items()} == ROWS


@pytest.mark.parametrize(("share", "num_folds"), [(0.2, 5), (0.3, 4), (0.07, 15), (0.6, 2)])
def test_consecutive_split_seeds_are_the_folds_of_a_cross_validation(share: float, num_folds: int) -> None:
    targets = torch.tensor([0, 1, 2, 1] * 23)
    folds = [hold_out(targets, share, seed, "set", "test")[1] for seed in range(2 * num_folds)]
    for first in (0, num_folds):  # every example is tested once
        assert torch.cat(folds[first : first + num_folds]).sort().values.tolist() == list(range(92))
    for fold in folds[1:num_folds]:
        shares = (targets.bincount() - targets[folds[0]].bincount()) / (num_folds - 1)
        torch.testing.assert_close(targets[fold].bincount().float(), shares, rtol=0, atol=1.0)
    assert folds[0].tolist() != folds[num_folds].tolist()  # the next seeds are folds of another permutation


@pytest.mark.parametrize("shares", [{"test": 0.2, "val": 0.1}, {"test": 0.2, "val": 0.4}, {"test": 0.0, "val": 0.2}])
def test_consecutive_split_seeds_hold_out_every_example_of_a_class_once(shares: dict[Stage, float]) -> None:
    stage: Stage = "test" if shares["test"] else "val"
    for first in (0, 5):
        folds = [split_by_class(THREE_CLASSES, shares, seed, "set")[stage] for seed in range(first, first + 5)]
        assert sorted(torch.cat(folds).tolist()) == list(range(len(THREE_CLASSES)))


def test_every_fold_of_a_few_examples_a_class_holds_some_out() -> None:
    targets = torch.arange(10).repeat(6)
    assert [len(hold_out(targets, 0.1, seed, "set", "val")[1]) for seed in range(10)] == [10, *[6] * 5, *[5] * 4]


def test_consecutive_split_seeds_test_every_row_once_and_keep_what_is_published() -> None:
    stages = np.array([-1] * 20 + [0] * 6 + [2] * 2)
    folds = [split_rows(stages, {"test": 0.25, "val": 0.25}, seed, "set") for seed in range(4)]
    assert sorted(row for rows in folds for row in rows["test"] if row < 20) == list(range(20))
    assert all({26, 27} < set(rows["test"].tolist()) for rows in folds)
    assert all(sorted(np.concatenate(list(rows.values()))) == list(range(28)) for rows in folds)


@pytest.mark.parametrize(("free", "shares"), [(0, {"test": 0.4, "val": 0.25}), (-1, {"test": 0.0, "val": 0.25})])
def test_where_no_rows_are_held_out_to_test_the_split_seeds_are_folds_of_the_validation(
    free: int, shares: dict[Stage, float]
) -> None:
    stages = np.array([free] * 20 + [2] * 2)
    folds = [split_rows(stages, shares, seed, "set")["val"] for seed in range(4)]
    assert sorted(np.concatenate(folds)) == list(range(20))


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
    with pytest.raises(DataError, match=r"holding out 0.01 of 30 examples for test takes none"):
        split_rows(np.full(30, -1), {"test": 0.01, "val": 0.2}, 0, "set")
    with pytest.raises(DataError, match="no example is left to train on"):
        split_rows(np.array([1, 2]), {"test": 0.0, "val": 0.0}, 0, "set")
