"""What is predicted of a sample, one class, numbers or labels: loss, metrics, tables, pictures and references."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torchmetrics import Metric, MetricCollection
from torchmetrics.classification import MulticlassAccuracy, MulticlassF1Score

from sliceformer_lab.measures.simple_models import ClassModel, SimpleModel, TargetModel, classifiers_of, regressors_of
from sliceformer_lab.tasks.metrics import (
    KnownAccuracy,
    KnownMeanAbsoluteError,
    MeanOverTargets,
    OneVsRestAUC,
    auc,
    average_precision,
    r2,
    rmse,
    spearman,
)
from sliceformer_lab.training.results.predicted import Names, ScoredSplit, TableRow, names_or_numbers, seven_digits

MAX_RANKED_CLASSES = 100  # classes; with more, the exact AUC of every class would cost as much as scoring the model
MAX_COLUMNS = 100  # classes with a column of probabilities each; with more, only the predicted one has it
MAX_MISTAKES = 12

NumberLoss = Literal["l1", "smooth_l1"]


@dataclass(frozen=True)
class Classes:
    """One class of a sample, from logits (B, classes). The loss is cross-entropy.

    With `double_softmax` the loss takes the probabilities for logits, as in Sliceformer's IMDB code.
    """

    count: int
    double_softmax: bool = False
    monitor: Literal["accuracy"] = "accuracy"
    monitor_mode: ClassVar[str] = "max"
    kept_type: ClassVar[torch.dtype] = torch.float16

    def metrics(self) -> Mapping[str, Metric | MetricCollection]:
        """Accuracy, F1 and AUC averaged over classes, and top-5 accuracy for more than five classes.

        The AUC of a class is that of its probability, against all other classes; up to MAX_RANKED_CLASSES classes.
        """
        metrics: dict[str, Metric | MetricCollection] = {
            "accuracy": MulticlassAccuracy(self.count, average="micro"),
            "f1": MulticlassF1Score(self.count, average="macro"),
        }
        if self.count > 5:
            metrics["accuracy_top5"] = MulticlassAccuracy(self.count, average="micro", top_k=5)
        if self.count <= MAX_RANKED_CLASSES:
            metrics["auc"] = OneVsRestAUC()
        return metrics

    def loss(
        self, output: Tensor, target: Tensor, scale: Tensor, weights: Tensor | None = None, smoothing: float = 0.0
    ) -> Tensor:
        """Cross-entropy with label smoothing; the soft targets (B, classes) of Mixup are smoothed already."""
        smoothing = smoothing if target.ndim == 1 else 0.0
        output = output.softmax(dim=1) if self.double_softmax else output
        return F.cross_entropy(output, target, weight=weights, label_smoothing=smoothing)

    def balanced_weights(self, targets: Tensor) -> Tensor:
        """A weight for each class (classes,), with which every class of the training targets (n,) weighs the same."""
        counts = targets.bincount(minlength=self.count)
        return len(targets) / (self.count * counts.clamp_min(1))

    def chance(self, targets: Tensor) -> float:
        """Accuracy of always predicting the most frequent class."""
        return float(targets.bincount().max() / len(targets))

    def outcomes(self, outputs: Tensor, names: Names) -> list[TableRow]:
        """The name of the likeliest class and the probabilities of all, from outputs (n, classes)."""
        probabilities = outputs.float().softmax(dim=1)
        rows: list[TableRow] = [{"prediction": names.classes[best]} for best in probabilities.argmax(dim=1).tolist()]
        for row, values in zip(rows, probabilities.tolist(), strict=True):
            if len(names.classes) <= MAX_COLUMNS:
                each = zip(names.classes, values, strict=True)
                row |= {f"probability_{name}": seven_digits(value) for name, value in each}
            else:
                row["probability"] = seven_digits(max(values))
        return rows

    def truths(self, targets: Tensor, names: Names) -> list[TableRow]:
        """The names of the true classes (n,)."""
        return [{"target": names.classes[target]} for target in targets.tolist()]

    def pictures(self, scored: ScoredSplit) -> Mapping[str, Callable[[Path], None]]:
        """The confusion matrix, and the wrong answers that the model was surest of."""
        probabilities = torch.from_numpy(scored.outputs).double().softmax(dim=1).numpy()
        mistakes = partial(_draw_mistakes, scored, probabilities)
        return {"confusion.png": partial(_draw_confusion, scored), "mistakes.png": mistakes}

    def constant(self, targets: Tensor) -> tuple[str, Tensor]:
        """The logs of the classes' frequencies (classes,)."""
        counts = targets.bincount(minlength=self.count).float()
        return "commonest class", (counts / counts.sum()).clamp_min(1e-9).log()

    def simple_models(self, contents: str | None, num_train: int) -> list[SimpleModel]:
        """A classifier on each kind of features that suits the contents."""
        return [ClassModel(each, self.count) for each in classifiers_of(contents, num_train)]


@dataclass(frozen=True)
class Numbers:
    """Numbers (B, T), NaN where they are missing.

    The loss is the mean of absolute errors, or of smooth L1, in units of each number's deviation.
    """

    monitor: Literal["mae"] = "mae"
    form: NumberLoss = "l1"
    monitor_mode: ClassVar[str] = "min"
    kept_type: ClassVar[torch.dtype] = torch.float32  # rounding would tie what metrics rank

    def metrics(self) -> Mapping[str, Metric]:
        """Mean absolute error of all numbers; root mean squared error, R2 and rank correlation, averaged over targets.

        Errors are in the targets' own unit.
        """
        scores = {"rmse": rmse, "r2": r2, "spearman": spearman}
        return {"mae": KnownMeanAbsoluteError(), **{name: MeanOverTargets(score) for name, score in scores.items()}}

    def loss(
        self, output: Tensor, target: Tensor, scale: Tensor, weights: Tensor | None = None, smoothing: float = 0.0
    ) -> Tensor:
        """Mean loss of the known numbers, divided by `scale`; numbers have neither weights nor smoothing."""
        known = ~target.isnan()
        errors = ((output - target) / scale).where(known, 0.0)
        each = errors.abs() if self.form == "l1" else F.smooth_l1_loss(errors, errors * 0, reduction="none")
        return each.sum() / known.sum().clamp_min(1)

    def balanced_weights(self, targets: Tensor) -> None:
        """Numbers have none."""

    def chance(self, targets: Tensor) -> float:
        """Mean absolute error of always predicting the median of each number; no constant has a smaller one."""
        return float((targets - targets.nanmedian(dim=0).values).abs().nanmean())

    def outcomes(self, outputs: Tensor, names: Names) -> list[TableRow]:
        return [
            {f"prediction_{name}": seven_digits(value) for name, value in zip(names.targets, row, strict=True)}
            for row in outputs.tolist()
        ]

    def truths(self, targets: Tensor, names: Names) -> list[TableRow]:
        """The true numbers (n, T); None for those that are missing."""
        return _format_truths(targets, names)

    def constant(self, targets: Tensor) -> tuple[str, Tensor]:
        """The median of each number, which suits the mean absolute error best."""
        return "training median", targets.nanmedian(dim=0).values

    def pictures(self, scored: ScoredSplit) -> Mapping[str, Callable[[Path], None]]:
        """Predicted over true numbers, and the largest errors."""
        from sliceformer_lab.measures.result_plots import plot_predicted

        return {
            "predicted.png": partial(_draw_plot, plot_predicted, scored),
            "mistakes.png": partial(_draw_errors, scored),
        }

    def simple_models(self, contents: str | None, num_train: int) -> list[SimpleModel]:
        """A model for each number, on each kind of features that suits the contents."""
        return [TargetModel(each, has_labels=False) for each in regressors_of(contents)]


@dataclass(frozen=True)
class Labels:
    """Labels that are true or false (B, T), NaN where they are missing. The loss is binary cross-entropy of logits."""

    monitor: Literal["auc", "average_precision"] = "auc"
    monitor_mode: ClassVar[str] = "max"
    kept_type: ClassVar[torch.dtype] = torch.float32

    def metrics(self) -> Mapping[str, Metric]:
        """Area under the ROC curve and average precision, averaged over labels; accuracy of all labels."""
        ranked = {"auc": auc, "average_precision": average_precision}
        return {**{name: MeanOverTargets(score) for name, score in ranked.items()}, "accuracy": KnownAccuracy()}

    def loss(
        self, output: Tensor, target: Tensor, scale: Tensor, weights: Tensor | None = None, smoothing: float = 0.0
    ) -> Tensor:
        """Binary cross-entropy, averaged over the known labels; `weights` (T,) are those of true labels."""
        known = ~target.isnan()
        each = F.binary_cross_entropy_with_logits(output, target.nan_to_num(), pos_weight=weights, reduction="none")
        return each.where(known, 0.0).sum() / known.sum().clamp_min(1)

    def balanced_weights(self, targets: Tensor) -> Tensor:
        """For each label (T,), how many times more often the training targets (n, T) have it false than true."""
        positive = (targets == 1).sum(dim=0)
        return torch.where(positive > 0, (targets == 0).sum(dim=0) / positive.clamp_min(1), 1.0)

    def chance(self, targets: Tensor) -> float:
        """Of equal outputs for all samples: one half, or the mean of the labels' frequencies for average precision."""
        frequencies = targets.nanmean(dim=0)
        scored = (frequencies > 0) & (frequencies < 1)  # the others have no average precision
        return 0.5 if self.monitor == "auc" else float(frequencies[scored].mean())

    def outcomes(self, outputs: Tensor, names: Names) -> list[TableRow]:
        """Each label, 0 or 1, and its probability. Without thresholds a label needs a probability above one half."""
        thresholds = names.thresholds or (0.5,) * len(names.targets)
        rows = [list(zip(names.targets, thresholds, row, strict=True)) for row in outputs.double().sigmoid().tolist()]
        return [
            {f"prediction_{name}": int(value > threshold) for name, threshold, value in row}
            | {f"probability_{name}": seven_digits(value) for name, _, value in row}
            for row in rows
        ]

    def truths(self, targets: Tensor, names: Names) -> list[TableRow]:
        """The true labels (n, T); None for those that are missing."""
        return _format_truths(targets, names)

    def constant(self, targets: Tensor) -> tuple[str, Tensor]:
        """The logit of each label's frequency."""
        return "label frequencies", targets.double().nanmean(dim=0).float().logit(eps=1e-6)

    def pictures(self, scored: ScoredSplit) -> Mapping[str, Callable[[Path], None]]:
        from sliceformer_lab.measures.result_plots import plot_roc

        return {"roc.png": partial(_draw_plot, plot_roc, scored)}

    def simple_models(self, contents: str | None, num_train: int) -> list[SimpleModel]:
        """A model for each label, on each kind of features that suits the contents."""
        return [TargetModel(each, has_labels=True) for each in classifiers_of(contents, num_train)]


TargetKind = Classes | Numbers | Labels  # with the methods of a `TargetTask`


def _format_truths(targets: Tensor, names: Names) -> list[TableRow]:
    rows = (zip(names.targets, row, strict=True) for row in targets.tolist())
    return [{f"target_{name}": None if value != value else seven_digits(value) for name, value in row} for row in rows]


def _draw_confusion(scored: ScoredSplit, path: Path) -> None:
    from sliceformer_lab.measures.drawing import names_in_picture
    from sliceformer_lab.measures.result_plots import plot_confusion

    targets, outputs = scored.targets, scored.outputs
    correct = float((outputs.argmax(axis=1) == targets).mean())
    title = f"{scored.title}: accuracy {100 * correct:.1f} %, {len(targets):,} examples"
    names, remark = names_in_picture(names_or_numbers(scored.data.class_names(), outputs.shape[1]))
    plot_confusion(targets, outputs, names, path, title + remark)


def _draw_mistakes(scored: ScoredSplit, probabilities: np.ndarray, path: Path) -> None:
    """The wrong answers that the model was surest of; no picture if all are right."""
    from sliceformer_lab.measures.drawing import names_in_picture
    from sliceformer_lab.measures.result_plots import Mistake, plot_mistakes

    targets, chances, answers = scored.targets, probabilities.max(axis=1), probabilities.argmax(axis=1)
    wrong = np.flatnonzero(answers != targets)
    worst = wrong[np.argsort(-chances[wrong], kind="stable")][:MAX_MISTAKES]
    if not len(worst):
        path.unlink(missing_ok=True)
        return
    names, remark = names_in_picture(names_or_numbers(scored.data.class_names(), probabilities.shape[1]))
    mistakes = [
        Mistake(example.place, example.content, names[targets[i]], f"predicted: {names[answers[i]]} ({chances[i]:.0%})")
        for i, example in zip(worst, scored.examples(worst), strict=True)
    ]
    title = f"{scored.title}: the {len(worst)} surest of {len(wrong):,} wrong answers to {len(targets):,} examples"
    plot_mistakes(mistakes, scored.data.content_kind, path, title + remark)


def _draw_plot(plot: Callable[..., None], scored: ScoredSplit, path: Path) -> None:
    from sliceformer_lab.measures.drawing import names_in_picture

    unit = scored.data.target_unit()
    title = f"{scored.title}, {len(scored.targets):,} examples{f', in {unit}' if unit else ''}"
    names, remark = names_in_picture(_list_names(scored))
    plot(scored.targets, scored.outputs, names, path, title + remark)


def _draw_errors(scored: ScoredSplit, path: Path) -> None:
    """The largest errors; of several targets the largest error in units of the target's deviation counts."""
    from sliceformer_lab.measures.drawing import names_in_picture
    from sliceformer_lab.measures.result_plots import Mistake, plot_mistakes

    targets, outputs = scored.targets.astype(np.float64), scored.outputs.astype(np.float64)
    deviation = np.nanstd(targets, axis=0)
    errors = np.nan_to_num(np.abs(outputs - targets) / np.where(deviation > 0, deviation, 1))
    worst = np.argsort(-errors.max(axis=1), kind="stable")[:MAX_MISTAKES]
    names, remark = names_in_picture(_list_names(scored))
    mistakes = []
    for i, example in zip(worst, scored.examples(worst), strict=True):
        target = int(errors[i].argmax())
        name = f"{names[target]} " if len(names) > 1 else ""
        truth, answer = targets[i, target], outputs[i, target]
        mistakes.append(Mistake(example.place, example.content, f"{name}{truth:.4g}", f"predicted: {answer:.4g}"))
    title = f"{scored.title}: the {len(worst)} largest errors of {len(targets):,} examples"
    plot_mistakes(mistakes, scored.data.content_kind, path, title + remark)


def _list_names(scored: ScoredSplit) -> tuple[str, ...]:
    return names_or_numbers(scored.data.target_names(), scored.outputs.shape[1])
