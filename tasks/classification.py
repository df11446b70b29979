"""The base class of classification tasks: metrics, loss and chance level."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional
from torchmetrics import Metric, MetricCollection
from torchmetrics.classification import MulticlassAccuracy, MulticlassF1Score

from sliceformer_lab.tasks.base import Task
from sliceformer_lab.tasks.metrics import OneVsRestAUC

MOST_RANKED = 100  # classes; with more, the exact AUC of every class would cost as much as scoring the model


class Classification(Task):
    """A task with one class per sample. Outputs are logits (B, classes)."""

    goal = "classes"
    label_smoothing: float = 0.0

    def build_metrics(self) -> MetricCollection:
        """Accuracy, F1 and AUC averaged over classes, and top-5 accuracy for more than five classes.

        The AUC of a class is that of its probability, against all other classes; up to MOST_RANKED classes.
        """
        classes = self.data_spec.num_classes
        metrics: dict[str, Metric | MetricCollection] = {
            "accuracy": MulticlassAccuracy(classes, average="micro"),
            "f1": MulticlassF1Score(classes, average="macro"),
        }
        if classes > 5:
            metrics["accuracy_top5"] = MulticlassAccuracy(classes, average="micro", top_k=5)
        if classes <= MOST_RANKED:
            metrics["auc"] = OneVsRestAUC()
        return MetricCollection(metrics, compute_groups=False)

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        """Cross-entropy with label smoothing; the soft targets (B, classes) of Mixup are smoothed already."""
        smoothing = self.label_smoothing if target.ndim == 1 else 0.0
        return functional.cross_entropy(output, target, label_smoothing=smoothing)

    def evaluation_loss(self, output: Tensor, target: Tensor) -> Tensor:
        """Cross-entropy without smoothing."""
        return functional.cross_entropy(output, target)

    def probabilities(self, outputs: Tensor) -> Tensor:
        """Probabilities (n, classes) of logits."""
        return outputs.float().softmax(dim=1)

    def chance(self, targets: Tensor) -> float:
        """Accuracy of always predicting the most frequent class."""
        return float(targets.bincount().max() / len(targets))
