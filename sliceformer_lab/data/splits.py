"""Which examples train, validate and test. A split seed decides it alone, so that a run's seed leaves it unchanged.

Consecutive split seeds are the folds of a cross-validation: with a share of 0.2, the seeds 0 to 4 hold out each example
once, and so do 5 to 9, in another order. The first fold has the share that was asked for, the others divide the rest.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from sliceformer_lab.errors import DataError

Stage = Literal["train", "val", "test"]
STAGES: tuple[Stage, ...] = ("train", "val", "test")


def hold_out(targets: Tensor, share: float, seed: int, title: str, stage: Stage) -> tuple[Tensor, Tensor]:
    """Positions that stay in training and positions held out for `stage`, both shuffled: (n,) int64 -> (k,), (n - k,).

    About `share` of every class is held out; `seed` names the fold. Raises DataError if that takes no example, or all.
    Examples with numbers or labels (n, T) count as one class.
    """
    if targets.ndim > 1:
        targets = torch.zeros(len(targets), dtype=torch.long)
    permutation, fold = _fold_of_seed(seed, share)
    order = torch.randperm(len(targets), generator=torch.Generator().manual_seed(permutation))
    by_class = order[targets[order].argsort(stable=True)]
    counts = targets.bincount()
    rank_in_class = torch.arange(len(targets)) - (counts.cumsum(0) - counts)[targets[by_class]]
    is_first = rank_in_class < (counts * share).round()[targets[by_class]]
    is_held = torch.zeros(len(targets), dtype=torch.bool)
    is_held[_choose_fold(by_class[is_first], by_class[~is_first], share, fold)] = True
    kept, held = order[~is_held[order]], order[is_held[order]]
    _check_share(share, len(held), len(targets), title, stage)
    return kept, held


def split_by_class(targets: Tensor, shares: Mapping[Stage, float], seed: int, title: str) -> dict[Stage, Tensor]:
    """Positions (k,) of each split among training examples with classes `targets` (n,).

    Each of `shares` is held out in turn from what the ones before left, and sorted; the rest trains, shuffled. `seed`
    names the fold of the first share above zero. Raises DataError if a share takes no example, or all.
    """
    rows: dict[Stage, Tensor] = {}
    permutation, _ = _fold_of_seed(seed, next(filter(None, shares.values()), 0.0))
    kept = hold_out(targets, 0.0, permutation, title, "train")[0]  # one order for all folds of a permutation
    for stage, share in shares.items():
        staying, held = hold_out(targets[kept], share, seed if share else permutation, title, stage)
        rows[stage] = kept[held].sort().values
        kept = kept[staying]
    return rows | {"train": kept}


def split_rows(stages: np.ndarray, shares: Mapping[Stage, float], seed: int, title: str) -> dict[Stage, np.ndarray]:
    """Shuffled positions (k,) of each split among examples whose published split is `stages` (n,).

    These are positions in STAGES, or -1 for an example without a split: `shares` of them test, the others train. Where
    the set has no validation examples, `shares` of the training examples become them. Raises DataError if a share takes
    no example, or nothing is left to train on.
    """
    free_stage: Stage = "test" if shares["test"] and -1 in stages else "val"
    permutation, fold = _fold_of_seed(seed, shares[free_stage])
    order = torch.randperm(len(stages), generator=torch.Generator().manual_seed(permutation)).numpy()
    shuffled = stages[order]
    rows = {stage: order[shuffled == number] for number, stage in enumerate(STAGES)}
    folds = {"test": 0, "val": 0} | {free_stage: fold}
    test, free = _take_fold(order[shuffled == -1], shares["test"], folds["test"])
    rows["test"] = np.concatenate([rows["test"], test])
    rows["train"] = np.concatenate([rows["train"], free])
    if not len(rows["val"]):
        rows["val"], rows["train"] = _take_fold(rows["train"], shares["val"], folds["val"])
    for stage, share in shares.items():
        _check_share(share, len(rows[stage]), len(stages), title, stage)
    if not len(rows["train"]):
        raise DataError(f"{title}: no example is left to train on; hold out fewer")
    return rows


def _fold_of_seed(seed: int, share: float) -> tuple[int, int]:
    """The permutation that a split seed names, and the number of its fold."""
    return divmod(seed, _num_folds(share))


def _num_folds(share: float) -> int:
    return math.ceil(1 / share - 1e-9) if share > 0 else 1


def _choose_fold(first: Tensor, rest: Tensor, share: float, fold: int) -> Tensor:
    """Fold 0 is `first`; the others deal out the rest like cards, so that each has its part of every class."""
    return first if fold == 0 else rest[fold - 1 :: _num_folds(share) - 1]


def _take_fold(rows: np.ndarray, share: float, fold: int) -> tuple[np.ndarray, np.ndarray]:
    """The rows of a fold, and the others in their order."""
    shuffled, size = torch.from_numpy(rows), round(share * len(rows))
    held = _choose_fold(shuffled[:size], shuffled[size:], share, fold).numpy()
    return held, rows[~np.isin(rows, held)]


def _check_share(share: float, held: int, total: int, title: str, stage: Stage) -> None:
    if share > 0 and held in (0, total):
        raise DataError(
            f"{title}: holding out {share} of {total} examples for {stage} takes {held or 'none'}; add examples or "
            f"change data.{stage}_fraction"
        )
