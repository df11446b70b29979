"""One class of a sample: loss, metrics, tables, pictures and references."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from torchmetrics import Metric, MetricCollection
from torchmetrics.classification import MulticlassAccuracy, MulticlassF1Score

from sliceformer_lab.measures.simple_models import ClassModel, SimpleModel, classifiers_of
from sliceformer_lab.tasks.metrics import OneVsRestAUC
from sliceformer_lab.training.results.predicted import Names, Row, ScoredSplit, names_or_numbers, seven_digits

MAX_RANKED_CLASSES = 100  # classes; with more, the exact AUC of every class would cost as much as scoring the model
MAX_COLUMNS = 100  # classes with a column of probabilities each; with more, only the predicted one has it
MAX_MISTAKES = 12


@dataclass(frozen=True)
class Classes:
    """One class of a sample, from logits (B, classes). The loss is cross-entropy with `smoothing`.

    With `double_softmax` outputs are probabilities, which the loss takes for logits, as in Sliceformer's IMDB code.
    """

    count: int
    smoothing: float = 0.0
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

    def loss(self, output: Tensor, target: Tensor, scale: Tensor, weights: Tensor | None) -> Tensor:
        """Cross-entropy with label smoothing; the soft targets (B, classes) of Mixup are smoothed already."""
        del scale
        smoothing = self.smoothing if target.ndim == 1 else 0.0
        return functional.cross_entropy(output, target, weight=weights, label_smoothing=smoothing)

    def evaluation_loss(self, output: Tensor, target: Tensor, scale: Tensor) -> Tensor:
        """Cross-entropy without smoothing and weights."""
        del scale
        return functional.cross_entropy(output, target)

    def balanced_weights(self, targets: Tensor) -> Tensor:
        """A weight for each class (classes,), with which every class of the training targets (n,) weighs the same."""
        counts = targets.bincount(minlength=self.count)
        return len(targets) / (self.count * counts.clamp_min(1))

    def chance(self, targets: Tensor) -> float:
        """Accuracy of always predicting the most frequent class."""
        return float(targets.bincount().max() / len(targets))

    def outcomes(self, outputs: Tensor, names: Names) -> list[Row]:
        """The name of the likeliest class and the probabilities of all, from outputs (n, classes)."""
        probabilities = outputs.float() if self.double_softmax else outputs.float().softmax(dim=1)
        rows: list[Row] = [{"prediction": names.classes[best]} for best in probabilities.argmax(dim=1).tolist()]
        for row, values in zip(rows, probabilities.tolist(), strict=True):
            if len(names.classes) <= MAX_COLUMNS:
                each = zip(names.classes, values, strict=True)
                row |= {f"probability_{name}": seven_digits(value) for name, value in each}
            else:
                row["probability"] = seven_digits(max(values))
        return rows

    def truths(self, targets: Tensor, names: Names) -> list[Row]:
        """The names of the true classes (n,)."""
        return [{"target": names.classes[target]} for target in targets.tolist()]

    def pictures(self, scored: ScoredSplit) -> Mapping[str, Callable[[Path], None]]:
        """The confusion matrix, and the wrong answers that the model was surest of."""
        return {"confusion.png": partial(_draw_confusion, scored), "mistakes.png": partial(_draw_mistakes, scored)}

    def constant(self, targets: Tensor) -> tuple[str, Tensor]:
        """The logs of the classes' frequencies (classes,)."""
        counts = targets.bincount(minlength=self.count).float()
        return "commonest class", (counts / counts.sum()).clamp_min(1e-9).log()

    def simple_models(self, contents: str | None, num_train: int) -> list[SimpleModel]:
        """A classifier on each kind of features that suits the contents."""
        return [ClassModel(each, self.count) for each in classifiers_of(contents, num_train)]


def _draw_confusion(scored: ScoredSplit, path: Path) -> None:
    from sliceformer_lab.measures.result_plots import plot_confusion

    targets, outputs = scored.targets, scored.outputs
    correct = float((outputs.argmax(axis=1) == targets).mean())
    title = f"{scored.title}: accuracy {100 * correct:.1f} %, {len(targets):,} examples"
    plot_confusion(targets, outputs, names_or_numbers(scored.data.class_names(), outputs.shape[1]), path, title)


def _draw_mistakes(scored: ScoredSplit, path: Path) -> None:
    """The wrong answers that the model was surest of; no picture if all are right."""
    from sliceformer_lab.measures.result_plots import Mistake, plot_mistakes

    targets, logits = scored.targets, scored.outputs.astype(np.float64)
    odds = np.exp(logits - logits.max(axis=1, keepdims=True))
    chances, answers = odds.max(axis=1) / odds.sum(axis=1), logits.argmax(axis=1)
    wrong = np.flatnonzero(answers != targets)
    worst = wrong[np.argsort(-chances[wrong], kind="stable")][:MAX_MISTAKES]
    if not len(worst):
        path.unlink(missing_ok=True)
        return
    names = names_or_numbers(scored.data.class_names(), logits.shape[1])
    mistakes = [
        Mistake(example.place, example.content, names[targets[i]], f"predicted: {names[answers[i]]} ({chances[i]:.0%})")
        for i, example in zip(worst, scored.examples(worst), strict=True)
    ]
    title = f"{scored.title}: the {len(worst)} surest of {len(wrong):,} wrong answers to {len(targets):,} examples"
    plot_mistakes(mistakes, scored.data.content_kind, path, title)
