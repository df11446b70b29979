"""What a task predicts where a sample has no single class: numbers, or labels that are true or false."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch.nn.functional as F
from torch import Tensor
from torchmetrics import Metric

from sliceformer_lab.tasks.metrics import (
    KnownAccuracy,
    KnownMeanAbsoluteError,
    MeanOverTargets,
    auc,
    average_precision,
    r2,
    rmse,
    spearman,
)

NumberLoss = Literal["l1", "smooth_l1"]


class TargetKind(ABC):
    """Loss, metrics and chance level of targets (B, T). Missing targets (NaN) are ignored in loss and metrics."""

    monitor: str  # the metric that selects the best epoch
    monitor_mode: ClassVar[str]
    goal: ClassVar[Literal["labels", "numbers"]]

    @abstractmethod
    def metrics(self) -> Mapping[str, Metric]:
        """Metrics of one split, by name, updated with (output, target)."""

    @abstractmethod
    def loss(self, output: Tensor, target: Tensor, scale: Tensor) -> Tensor:
        """Mean loss of the known targets; `scale` (T,) are the deviations of numbers."""

    @abstractmethod
    def chance(self, targets: Tensor) -> float:
        """The monitored metric of the best constant prediction."""


@dataclass(frozen=True)
class Numbers(TargetKind):
    """Numbers. The loss is the mean of absolute errors, or of smooth L1, in units of each number's deviation."""

    monitor: Literal["mae"] = "mae"
    form: NumberLoss = "l1"
    monitor_mode: ClassVar[str] = "min"
    goal: ClassVar[Literal["labels", "numbers"]] = "numbers"

    def metrics(self) -> Mapping[str, Metric]:
        """Mean absolute error of all numbers; root mean squared error, R2 and rank correlation, averaged over targets.

        Errors are in the targets' own unit.
        """
        scores = {"rmse": rmse, "r2": r2, "spearman": spearman}
        return {"mae": KnownMeanAbsoluteError(), **{name: MeanOverTargets(score) for name, score in scores.items()}}

    def loss(self, output: Tensor, target: Tensor, scale: Tensor) -> Tensor:
        """Mean loss of the known numbers, divided by `scale`."""
        known = ~target.isnan()
        errors = ((output - target) / scale).where(known, 0.0)
        each = errors.abs() if self.form == "l1" else F.smooth_l1_loss(errors, errors * 0, reduction="none")
        return each.sum() / known.sum().clamp_min(1)

    def chance(self, targets: Tensor) -> float:
        """Mean absolute error of always predicting the mean of these targets."""
        return float((targets - targets.nanmean(dim=0)).abs().nanmean())


@dataclass(frozen=True)
class Labels(TargetKind):
    """Labels that are true or false, several at once. Outputs are logits; the loss is binary cross-entropy."""

    monitor: Literal["auc", "average_precision"] = "auc"
    monitor_mode: ClassVar[str] = "max"
    goal: ClassVar[Literal["labels", "numbers"]] = "labels"

    def metrics(self) -> Mapping[str, Metric]:
        """Area under the ROC curve and average precision, averaged over labels; accuracy of all labels."""
        ranked = {"auc": auc, "average_precision": average_precision}
        return {**{name: MeanOverTargets(score) for name, score in ranked.items()}, "accuracy": KnownAccuracy()}

    def loss(self, output: Tensor, target: Tensor, scale: Tensor) -> Tensor:
        """Binary cross-entropy, averaged over the known labels."""
        del scale
        known = ~target.isnan()
        each = F.binary_cross_entropy_with_logits(output, target.nan_to_num(), reduction="none")
        return each.where(known, 0.0).sum() / known.sum().clamp_min(1)

    def chance(self, targets: Tensor) -> float:
        """Of equal outputs for all samples: one half, or the mean of the labels' frequencies for average precision."""
        return 0.5 if self.monitor == "auc" else float(targets.nanmean(dim=0).nanmean())
