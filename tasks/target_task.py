"""The base class of tasks that predict a class, numbers or labels of a sample."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal

import torch
from pytorch_lightning.trainer.states import TrainerFn
from torch import Tensor
from torchmetrics import MetricCollection

from sliceformer_lab.data.base import DataModule
from sliceformer_lab.measures.simple_models import SimpleModel
from sliceformer_lab.tasks.base import DataSizes, ModelConfig, Task
from sliceformer_lab.tasks.metrics import best_thresholds, f1_scores
from sliceformer_lab.tasks.targets import Classes, Labels, Numbers, TargetKind
from sliceformer_lab.training.results.predicted import Names, ScoredSplit, TableRow

ClassWeights = Literal["balanced"]


class TargetTask(Task):
    """A task that predicts one class of a sample, or several numbers or labels.

    Outputs are logits (B, classes), or numbers or logits (B, T). Numbers are standardised by the training set's mean
    and deviation, which every checkpoint holds, unless `standardise` is false: a subclass passes its outputs through
    `in_own_unit`. With class_weights=balanced, every class weighs the same in the training loss, and every label as
    much where it is true as where it is false.
    """

    standardise = True
    label_smoothing: float = 0.0  # of classes
    class_weights: ClassWeights | None = None
    target_mean: Tensor  # (T,)
    target_std: Tensor  # (T,)

    def __init__(self, model: ModelConfig, data: DataSizes) -> None:
        super().__init__(model, data)
        kind, count = self.kind, self.data_spec.num_targets
        self.monitor, self.monitor_mode, self.kept_type = kind.monitor, kind.monitor_mode, kind.kept_type
        saved = isinstance(kind, Numbers)
        self.register_buffer("target_mean", torch.zeros(count), persistent=saved)
        self.register_buffer("target_std", torch.ones(count), persistent=saved)
        self._weights: Tensor | None = None

    @property
    def kind(self) -> TargetKind:
        """What is predicted."""
        if self.data_spec.targets == "labels":
            return Labels()
        return Numbers() if self.data_spec.num_targets else Classes(self.data_spec.num_classes)

    @property
    def num_outputs(self) -> int:
        return self.data_spec.num_targets or self.data_spec.num_classes

    def setup(self, stage: str) -> None:
        """Reads the statistics of the training targets; a checkpoint has the mean and deviation of numbers."""
        if stage != TrainerFn.FITTING:
            return
        if isinstance(self.kind, Numbers) and self.standardise:
            mean, std = self._data.target_statistics()
            self.target_mean.copy_(mean)
            self.target_std.copy_(std)
        if self.class_weights == "balanced":
            self._weights = self.kind.balanced_weights(self._data.training_targets())

    @property
    def _data(self) -> DataModule:
        data: DataModule = self.trainer.datamodule  # type: ignore[attr-defined]
        return data

    def weigh_classes(self, class_weights: ClassWeights | None) -> None:
        """Sets the option `class_weights`. Raises ValueError for numbers."""
        if class_weights is not None and isinstance(self.kind, Numbers):
            raise ValueError(f"class_weights={class_weights}: {self.data_spec.name} has numbers; set it to null")
        self.class_weights = class_weights

    def in_own_unit(self, output: Tensor) -> Tensor:
        """The output of a head (B, T) in the unit of the numbers; logits as they are."""
        return output * self.target_std + self.target_mean if isinstance(self.kind, Numbers) else output

    def build_metrics(self) -> MetricCollection:
        return MetricCollection(dict(self.kind.metrics()), compute_groups=False)

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        """The loss of classes, numbers or labels; missing targets (NaN) are ignored."""
        weights = None if self._weights is None else self._weights.to(output.device)
        return self.kind.loss(output, target, self.target_std, weights, self.label_smoothing)

    def evaluation_loss(self, output: Tensor, target: Tensor) -> Tensor:
        return self.kind.loss(output, target, self.target_std)

    def thresholds(self, predictions: Mapping[str, Mapping[str, Tensor]]) -> tuple[float, ...]:
        """The probability of each label above which it is predicted, with the best F1 in validation."""
        if not isinstance(self.kind, Labels) or "val" not in predictions:
            return ()
        validation = predictions["val"]
        return tuple(best_thresholds(validation["logits"].float(), validation["targets"]).tolist())

    def decided_metrics(
        self, predictions: Mapping[str, Mapping[str, Tensor]], thresholds: Sequence[float] = ()
    ) -> dict[str, float]:
        """Micro and macro F1 of the labels on each split, decided by `thresholds` or by those of validation."""
        if not (chosen := torch.tensor(thresholds or self.thresholds(predictions), dtype=torch.float64)).numel():
            return {}
        return {
            f"{split}/{name}": value
            for split, parts in predictions.items()
            for name, value in f1_scores(parts["logits"].float(), parts["targets"], chosen).items()
        }

    def chance(self, targets: Tensor) -> float:
        return self.kind.chance(targets)

    def columns(self, names: Names) -> tuple[str, ...]:
        return tuple(self.outcomes(torch.zeros(1, len(names.classes) or len(names.targets)), names)[0])

    def outcomes(self, outputs: Tensor, names: Names) -> list[TableRow]:
        return self.kind.outcomes(outputs, names)

    def truths(self, targets: Tensor, names: Names) -> list[TableRow]:
        return self.kind.truths(targets, names)

    def pictures(self, scored: ScoredSplit) -> Mapping[str, Callable[[Path], None]]:
        return self.kind.pictures(scored)

    def constant(self, targets: Tensor) -> tuple[str, Tensor]:
        """The frequencies of classes or labels, or the median of each number."""
        return self.kind.constant(targets)

    def simple_models(self, data: DataModule, num_train: int) -> Sequence[SimpleModel]:
        return self.kind.simple_models(data.content_kind, num_train)
