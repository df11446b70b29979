"""The base class of classification tasks: metrics, loss and chance level."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional
from torchmetrics import Metric, MetricCollection
from torchmetrics.classification import MulticlassAccuracy

from sliceformer_lab.tasks.base import Task


class Classification(Task):
    """A task with one class per sample. Outputs are logits (B, classes)."""

    label_smoothing: float = 0.0

    def build_metrics(self) -> MetricCollection:
        """Top-1 accuracy, and top-5 accuracy for more than five classes."""
        classes = self.data_spec.num_classes
        metrics: dict[str, Metric | MetricCollection] = {"accuracy": MulticlassAccuracy(classes, average="micro")}
        if classes > 5:
            metrics["accuracy_top5"] = MulticlassAccuracy(classes, average="micro", top_k=5)
        return MetricCollection(metrics, compute_groups=False)

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        """Cross-entropy with label smoothing; the soft targets (B, classes) of Mixup are smoothed already."""
        smoothing = self.label_smoothing if target.ndim == 1 else 0.0
        return functional.cross_entropy(output, target, label_smoothing=smoothing)

    def evaluation_loss(self, output: Tensor, target: Tensor) -> Tensor:
        """Cross-entropy without smoothing."""
        return functional.cross_entropy(output, target)

    def chance(self, targets: Tensor) -> float:
        """Accuracy of always predicting the most frequent class."""
        return float(targets.bincount().max() / len(targets))
