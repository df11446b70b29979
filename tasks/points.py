"""Point clouds: classification of clouds, and segmentation of their points into parts."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional
from torchmetrics import Metric, MetricCollection
from torchmetrics.classification import MulticlassAccuracy
from torchmetrics.utilities import dim_zero_cat

from sliceformer_lab.attention.dropout import Dropout
from sliceformer_lab.batch import Batch
from sliceformer_lab.config.option_types import Count, Fraction
from sliceformer_lab.encoder.embed import TokenEmbedding
from sliceformer_lab.encoder.factory import build_encoder
from sliceformer_lab.encoder.linear_init import initialise_head
from sliceformer_lab.encoder.pool import PoolMode
from sliceformer_lab.tasks.base import DataSizes, ModelConfig
from sliceformer_lab.tasks.masked_balls import CloudTask
from sliceformer_lab.tasks.metrics import MeanClassAccuracy
from sliceformer_lab.tasks.sequence import Head, SequenceClassification
from sliceformer_lab.tasks.target_task import ClassWeights


class PointClassification(CloudTask, SequenceClassification):
    """A point-cloud encoder of any attention. Points (B, N, 3 or 6) -> logits (B, classes).

    `head_dropout` applies to the pooled vector, as in the Set Transformer. The metrics are accuracy over clouds and the
    mean of the classes' accuracies.
    """

    def __init__(
        self,
        model: ModelConfig,
        data: DataSizes,
        *,
        pool: PoolMode = "max",
        head: Head = "linear",
        head_dim: Count | None = None,
        head_dropout: Fraction = 0.0,
        label_smoothing: Fraction = 0.0,
        class_weights: ClassWeights | None = None,
    ) -> None:
        super().__init__(
            *(model, data),
            pool=pool,
            head=head,
            head_dim=head_dim,
            label_smoothing=label_smoothing,
            class_weights=class_weights,
        )
        self.head = nn.Sequential(Dropout(head_dropout), self.head)

    def build_metrics(self) -> MetricCollection:
        metrics = super().build_metrics()
        metrics.add_metrics({"mean_class_accuracy": MeanClassAccuracy(self.data_spec.num_classes)})
        return metrics


class PartIoU(Metric):
    """Intersection over union of parts, (B, N) predicted and true parts -> scalar.

    The IoU of a shape is the mean over the parts of its category; a part that neither has counts 1. `instance` is the
    mean over shapes, `class` the mean of the categories' means (Yi et al. 2016, as PointNet reports them).
    """

    full_state_update = False
    shapes: list[Tensor]
    categories: list[Tensor]

    def __init__(self, categories: list[range], mean_over: str) -> None:
        super().__init__()
        self.parts, self.mean_over = categories, mean_over
        self.add_state("shapes", default=[], dist_reduce_fx="cat")
        self.add_state("categories", default=[], dist_reduce_fx="cat")

    def update(self, predicted: Tensor, target: Tensor) -> None:
        category = category_of(target, self.parts)
        self.categories.append(category)
        self.shapes.append(
            torch.stack([self._compute_iou(*row) for row in zip(predicted, target, category, strict=True)])
        )

    def _compute_iou(self, predicted: Tensor, target: Tensor, category: Tensor) -> Tensor:
        parts = torch.tensor(list(self.parts[int(category)]), device=target.device)[:, None]
        ours, theirs = predicted == parts, target == parts
        union = (ours | theirs).sum(dim=1)
        return torch.where(union > 0, (ours & theirs).sum(dim=1) / union.clamp_min(1), 1.0).mean()

    def compute(self) -> Tensor:
        shapes, categories = dim_zero_cat(self.shapes), dim_zero_cat(self.categories)
        if self.mean_over == "instance":
            return shapes.mean()
        return torch.stack([shapes[categories == one].mean() for one in torch.unique(categories)]).mean()


class PointSegmentation(CloudTask):
    """Parts of shapes from any attention. Points (B, N, 3 or 6) and a category (B, F) -> logits (B, N, parts).

    The head reads each point's token, the maximum over the cloud and the category. Predictions are parts of the shape's
    own category, which is given, as is usual on ShapeNetPart.
    """

    monitor = "instance_iou"
    kept_type = torch.uint8

    def __init__(
        self,
        model: ModelConfig,
        data: DataSizes,
        *,
        head_dim: Count = 256,
        head_dropout: Fraction = 0.0,
        label_smoothing: Fraction = 0.0,
    ) -> None:
        super().__init__(model, data)
        spec, nodes = self.data_spec, self.nodes
        if spec.max_len is None or spec.targets != "parts":
            raise ValueError(f"{spec.name} has no shapes with parts; choose another task for it")
        self.embedding = TokenEmbedding(0, spec.channels, self.dim)
        self.encoder = build_encoder(nodes.encoder, nodes.block, nodes.attention, spec.max_len)
        self.head = nn.Sequential(
            nn.Linear(2 * self.dim + len(spec.parts), head_dim),
            nn.ReLU(),
            Dropout(head_dropout),
            nn.Linear(head_dim, spec.num_classes),
        )
        initialise_head(self.head, self.encoder.options)
        self.label_smoothing = label_smoothing

    def build_metrics(self) -> MetricCollection:
        """Mean IoU over shapes and over categories, and the accuracy over points."""
        parts = [range(first, last) for first, last in self.data_spec.parts]
        metrics: dict[str, Metric | MetricCollection] = {
            f"{mean}_iou": PartIoU(parts, mean) for mean in ("instance", "class")
        }
        metrics["accuracy"] = MulticlassAccuracy(self.data_spec.num_classes, average="micro")
        return MetricCollection(metrics, compute_groups=False)

    def forward(self, batch: Batch) -> Tensor:
        """Points (B, N, 3 or 6) and category (B, F) -> logits (B, N, parts)."""
        if batch.context is None:
            raise ValueError("segmentation needs each shape's category")
        tokens = self.encoder(self.embedding(batch.inputs))
        whole = torch.cat([tokens.amax(dim=1), batch.context], dim=1)[:, None].expand(-1, tokens.shape[1], -1)
        return self.head(torch.cat([tokens, whole], dim=2))

    def kept(self, output: Tensor, batch: Batch) -> Tensor:
        """The most likely part of each point (B, N) among the parts of its shape's category."""
        if batch.context is None:
            raise ValueError("segmentation needs each shape's category")
        own = torch.zeros(len(self.data_spec.parts), output.shape[2], dtype=torch.bool, device=output.device)
        for category, (first, last) in enumerate(self.data_spec.parts):
            own[category, first:last] = True
        allowed = own[batch.context.argmax(dim=1)][:, None]
        return output.masked_fill(~allowed, -torch.inf).argmax(dim=2)

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        """Cross-entropy over all points and parts, with label smoothing."""
        return functional.cross_entropy(output.transpose(1, 2), target, label_smoothing=self.label_smoothing)

    def evaluation_loss(self, output: Tensor, target: Tensor) -> Tensor:
        return functional.cross_entropy(output.transpose(1, 2), target)

    def chance(self, targets: Tensor) -> float:
        """Instance IoU of always predicting the most frequent part of a shape's category."""
        parts = [range(first, last) for first, last in self.data_spec.parts]
        categories = category_of(targets, parts)
        guess = torch.empty_like(targets)
        for category in torch.unique(categories):
            rows = categories == category
            guess[rows] = targets[rows].flatten().mode().values
        metric = PartIoU(parts, "instance")
        metric.update(guess, targets)
        return float(metric.compute())

    def example(self) -> Batch:
        """One cloud of the largest size and of the first category, to count costs with."""
        category = torch.eye(1, len(self.data_spec.parts), device=self.device)
        return replace(super().example(), context=category)


def category_of(targets: Tensor, categories: list[range]) -> Tensor:
    """The category of each shape, from its parts (B, N): (B,) int64."""
    ends = torch.tensor([parts.stop for parts in categories], device=targets.device)
    return torch.searchsorted(ends, targets[:, 0].contiguous(), right=True)
