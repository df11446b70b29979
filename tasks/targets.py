"""Tasks whose samples have numbers, or labels that are true or false, in place of one class."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torchmetrics import Metric, MetricCollection

from sliceformer_lab.config.checked import ModelNodes
from sliceformer_lab.data.base import DataModule
from sliceformer_lab.data.spec import DataSpec
from sliceformer_lab.measures.simple_models import TargetModel, features_of
from sliceformer_lab.tasks.base import Task
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
from sliceformer_lab.training.results.predicted import Names, Row, ScoredSplit, names_or_numbers, seven_digits

MAX_MISTAKES = 12

NumberLoss = Literal["l1", "smooth_l1"]


@dataclass(frozen=True)
class Numbers:
    """Numbers (B, T), NaN where they are missing.

    The loss is the mean of absolute errors, or of smooth L1, in units of each number's deviation.
    """

    monitor: Literal["mae"] = "mae"
    form: NumberLoss = "l1"
    monitor_mode: ClassVar[str] = "min"

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

    def outcomes(self, outputs: Tensor, names: Sequence[str]) -> list[Row]:
        """The numbers."""
        return [
            {f"prediction_{name}": seven_digits(value) for name, value in zip(names, row, strict=True)}
            for row in outputs.tolist()
        ]

    def constant(self, targets: Tensor) -> tuple[str, Tensor]:
        """The mean of each number."""
        return "training mean", _means(targets)

    def pictures(self, scored: ScoredSplit) -> Mapping[str, Callable[[Path], None]]:
        """Predicted over true numbers, and the largest errors."""
        from sliceformer_lab.measures.result_plots import plot_predicted

        return {"predicted.png": partial(_draw, plot_predicted, scored), "mistakes.png": partial(_draw_errors, scored)}


@dataclass(frozen=True)
class Labels:
    """Labels that are true or false (B, T), NaN where they are missing. The loss is binary cross-entropy of logits."""

    monitor: Literal["auc", "average_precision"] = "auc"
    monitor_mode: ClassVar[str] = "max"

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

    def outcomes(self, outputs: Tensor, names: Sequence[str]) -> list[Row]:
        """Each label, 0 or 1, and its probability."""
        rows = [dict(zip(names, row, strict=True)) for row in outputs.sigmoid().tolist()]
        return [
            {f"prediction_{name}": int(value > 0.5) for name, value in row.items()}
            | {f"probability_{name}": seven_digits(value) for name, value in row.items()}
            for row in rows
        ]

    def constant(self, targets: Tensor) -> tuple[str, Tensor]:
        """The logit of each label's frequency."""
        return "label frequencies", _means(targets).logit(eps=1e-6)

    def pictures(self, scored: ScoredSplit) -> Mapping[str, Callable[[Path], None]]:
        """The ROC curves."""
        from sliceformer_lab.measures.result_plots import plot_roc

        return {"roc.png": partial(_draw, plot_roc, scored)}


class TargetTask(Task):
    """A task with several numbers or labels for a sample. Outputs are numbers or logits (B, T)."""

    def __init__(self, model: ModelNodes | Mapping[str, Any], data: DataSpec | Mapping[str, Any]) -> None:
        super().__init__(model, data)
        self.monitor, self.monitor_mode = self.kind.monitor, self.kind.monitor_mode

    @property
    def kind(self) -> Numbers | Labels:
        """What the targets are."""
        return Labels() if self.data_spec.targets == "labels" else Numbers()

    @property
    def target_scale(self) -> Tensor:
        """The deviations of numbers (T,), in whose unit the loss is."""
        return torch.ones(self.data_spec.num_targets, device=self.device)

    def build_metrics(self) -> MetricCollection:
        """The metrics of numbers or labels."""
        return MetricCollection(dict(self.kind.metrics()), compute_groups=False)

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        """The loss of numbers or labels; missing targets (NaN) are ignored."""
        return self.kind.loss(output, target, self.target_scale)

    def chance(self, targets: Tensor) -> float:
        """The monitored metric of the best constant prediction."""
        return self.kind.chance(targets)

    def columns(self, names: Names) -> tuple[str, ...]:
        """Those of the numbers or labels."""
        return tuple(self.outcomes(torch.zeros(1, len(names.targets)), names)[0])

    def outcomes(self, outputs: Tensor, names: Names) -> list[Row]:
        """The numbers or labels of each sample."""
        return self.kind.outcomes(outputs, names.targets)

    def truths(self, targets: Tensor, names: Names) -> list[Row]:
        """The true numbers or labels (n, T); None for those that are missing."""
        return [
            {f"target_{name}": None if value != value else seven_digits(value) for name, value in found}
            for found in (zip(names.targets, row, strict=True) for row in targets.tolist())
        ]

    def pictures(self, scored: ScoredSplit) -> Mapping[str, Callable[[Path], None]]:
        """Those of numbers or labels."""
        return self.kind.pictures(scored)

    def constant(self, targets: Tensor) -> tuple[str, Tensor]:
        """The mean of each target, or the logit of its frequency."""
        return self.kind.constant(targets)

    def simple_models(self, data: DataModule, num_train: int) -> list[TargetModel]:
        """A model for each target, on each kind of features that suits the contents."""
        has_labels = isinstance(self.kind, Labels)
        return [TargetModel(each, has_labels) for each in features_of(data.content_kind, num_train)]


def _means(targets: Tensor) -> Tensor:
    """The mean (T,) of the known values of each target."""
    return targets.double().nanmean(dim=0).float()


def _draw(plot: Callable[..., None], scored: ScoredSplit, path: Path) -> None:
    title = f"{scored.title}, {len(scored.targets):,} examples"
    plot(scored.targets, scored.outputs, _names(scored), path, title)


def _draw_errors(scored: ScoredSplit, path: Path) -> None:
    """The largest errors; of several targets the largest error in units of the target's deviation counts."""
    from sliceformer_lab.measures.result_plots import Mistake, plot_mistakes

    targets, outputs = scored.targets.astype(np.float64), scored.outputs.astype(np.float64)
    deviation = np.nanstd(targets, axis=0)
    errors = np.nan_to_num(np.abs(outputs - targets) / np.where(deviation > 0, deviation, 1))
    worst = np.argsort(-errors.max(axis=1), kind="stable")[:MAX_MISTAKES]
    names = _names(scored)
    mistakes = []
    for i, example in zip(worst, scored.examples(worst), strict=True):
        target = int(errors[i].argmax())
        name = f"{names[target]} " if len(names) > 1 else ""
        truth, answer = targets[i, target], outputs[i, target]
        mistakes.append(Mistake(example.place, example.content, f"{name}{truth:.4g}", f"predicted: {answer:.4g}"))
    title = f"{scored.title}: the {len(worst)} largest errors of {len(targets):,} examples"
    plot_mistakes(mistakes, scored.data.content_kind, path, title)


def _names(scored: ScoredSplit) -> tuple[str, ...]:
    return names_or_numbers(scored.data.target_names(), scored.outputs.shape[1])
