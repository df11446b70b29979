"""Metrics of masked modelling. Predicted (M,) or (M, F) for the M masked units, targets (B, N) or (B, N, F)."""

from __future__ import annotations

import torch
from torch import Tensor
from torchmetrics import Metric

from sliceformer_lab.batch import NO_CLASS
from sliceformer_lab.tasks.metrics import MeanOfValues


def is_masked(target: Tensor) -> Tensor:
    """Which units (B, N) have a target: classes (B, N) or numbers (B, N, F)."""
    return ~target[..., 0].isnan() if target.is_floating_point() else target != NO_CLASS


class MaskedAccuracy(MeanOfValues):
    """Share of the masked units whose class is right."""

    summed_as = torch.long

    def update(self, predicted: Tensor, target: Tensor) -> None:
        """Scores some units."""
        self.add(predicted == target[is_masked(target)])


class MostFrequent(Metric):
    """Accuracy of always predicting the commonest class of the masked units, which needs no context."""

    full_state_update = False
    counts: Tensor  # (classes,)

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.add_state("counts", torch.zeros(classes, dtype=torch.long), dist_reduce_fx="sum")

    def update(self, predicted: Tensor, target: Tensor) -> None:
        """Counts some units."""
        del predicted
        self.counts += target[is_masked(target)].bincount(minlength=len(self.counts))

    def compute(self) -> Tensor:
        """The share of the commonest class."""
        return self.counts.max() / self.counts.sum()


class MaskedR2(Metric):
    """Share of the squared deviations of masked numbers from their mean that is explained; below 0 if none is.

    `shape` is (N, F). With `at_position`, deviations are from the mean of each position and number, which is all that a
    model without context can know; otherwise from the mean of all.
    """

    full_state_update = False
    count: Tensor  # (N, F)
    total: Tensor
    squares: Tensor
    errors: Tensor

    def __init__(self, shape: tuple[int, int], *, at_position: bool = False) -> None:
        super().__init__()
        self.at_position = at_position
        for name in ("count", "total", "squares"):
            self.add_state(name, torch.zeros(shape, dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("errors", torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")

    def update(self, predicted: Tensor, target: Tensor) -> None:
        """Scores some units."""
        mask = is_masked(target)
        self.errors += (predicted - target[mask]).double().square().sum()
        known = target.masked_fill(~mask[..., None], 0).double()
        places = slice(target.shape[1])  # a batch of short samples has fewer positions
        self.count[places] += mask.sum(0)[:, None]
        self.total[places] += known.sum(0)
        self.squares[places] += known.square().sum(0)

    def compute(self) -> Tensor:
        """R2; NaN if all numbers are equal."""
        count, total = (self.count, self.total) if self.at_position else (self.count.sum(), self.total.sum())
        deviations = self.squares.sum() - (total.square() / count.clamp_min(1)).sum()
        return torch.where(deviations > 0, 1 - self.errors / deviations, torch.nan).float()
