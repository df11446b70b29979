"""Which examples train, validate and test. A split seed decides it alone, so that a run's seed leaves it unchanged."""

from __future__ import annotations

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

    `share` of every class is held out. Raises DataError if that takes no example, or all.
    """
    order = torch.randperm(len(targets), generator=torch.Generator().manual_seed(seed))
    by_class = order[targets[order].argsort(stable=True)]
    counts = targets.bincount()
    rank_in_class = torch.arange(len(targets)) - (counts.cumsum(0) - counts)[targets[by_class]]
    is_held = torch.zeros(len(targets), dtype=torch.bool)
    is_held[by_class] = rank_in_class < (counts * share).round()[targets[by_class]]
    kept, held = order[~is_held[order]], order[is_held[order]]
    _check_share(share, len(held), len(targets), title, stage)
    return kept, held


def split_by_class(targets: Tensor, shares: Mapping[Stage, float], seed: int, title: str) -> dict[Stage, Tensor]:
    """Positions (k,) of each split among training examples with classes `targets` (n,).

    Each of `shares` is held out in turn from what the ones before left, and sorted; the rest trains, shuffled. Raises
    DataError if a share takes no example, or all.
    """
    rows: dict[Stage, Tensor] = {}
    kept = hold_out(targets, 0.0, seed, title, "train")[0]
    for stage, share in shares.items():
        staying, held = hold_out(targets[kept], share, seed, title, stage)
        rows[stage] = kept[held].sort().values
        kept = kept[staying]
    return rows | {"train": kept}


def split_rows(stages: np.ndarray, shares: Mapping[Stage, float], seed: int, title: str) -> dict[Stage, np.ndarray]:
    """Shuffled positions (k,) of each split among examples whose published split is `stages` (n,).

    These are positions in STAGES, or -1 for an example without a split: `shares` of them test, the others train. Where
    the set has no validation examples, `shares` of the training examples become them. Raises DataError if a share takes
    no example, or nothing is left to train on.
    """
    order = torch.randperm(len(stages), generator=torch.Generator().manual_seed(seed)).numpy()
    shuffled = stages[order]
    rows = {stage: order[shuffled == number] for number, stage in enumerate(STAGES)}
    free = order[shuffled == -1]
    test, free = np.split(free, [round(shares["test"] * len(free))])
    rows["test"] = np.concatenate([rows["test"], test])
    rows["train"] = np.concatenate([rows["train"], free])
    if not len(rows["val"]):
        rows["val"], rows["train"] = np.split(rows["train"], [round(shares["val"] * len(rows["train"]))])
    for stage, share in shares.items():
        _check_share(share, len(rows[stage]), len(stages), title, stage)
    if not len(rows["train"]):
        raise DataError(f"{title}: no example is left to train on; hold out fewer")
    return rows


def _check_share(share: float, held: int, total: int, title: str, stage: Stage) -> None:
    if share > 0 and held in (0, total):
        raise DataError(
            f"{title}: holding out {share} of {total} examples for {stage} takes {held or 'none'}; add examples or "
            f"change data.{stage}_fraction"
        )
