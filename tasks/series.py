"""A class or a number of a series: patches of its time steps, encoder, pooling and head."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor
from torchmetrics import MetricCollection

from sliceformer_lab.batch import Batch, Padding
from sliceformer_lab.config.checked import ModelNodes
from sliceformer_lab.config.option_types import Count, Fraction
from sliceformer_lab.data.base import DataModule
from sliceformer_lab.data.spec import DataSpec
from sliceformer_lab.encoder.hidden import Hidden
from sliceformer_lab.encoder.pool import PoolMode
from sliceformer_lab.encoder.series_embed import SeriesEmbedding, SeriesStem
from sliceformer_lab.measures.simple_models import SimpleModel
from sliceformer_lab.tasks.classification import Classification
from sliceformer_lab.tasks.masked import Units
from sliceformer_lab.tasks.sequence import Head, SequenceClassification
from sliceformer_lab.tasks.targets import TargetTask
from sliceformer_lab.training.results.predicted import Names, Row, ScoredSplit


class SeriesTask(SequenceClassification, TargetTask):
    """A sequence encoder over patches of a series (B, N, F) -> logits (B, classes), or numbers (B, T).

    The data say which; numbers are standardised by the training set's mean and deviation, which a checkpoint holds.
    Raises ValueError for data that are no series.
    """

    kept_type: ClassVar[torch.dtype] = torch.float32  # rounding would tie what metrics of numbers rank
    target_mean: Tensor  # (T,)
    target_std: Tensor  # (T,)

    def __init__(
        self,
        model: ModelNodes | Mapping[str, Any],
        data: DataSpec | Mapping[str, Any],
        *,
        stem: SeriesStem = "conv",
        pool: PoolMode = "mean",
        head: Head = "linear",
        head_dim: Count | None = None,
        label_smoothing: Fraction = 0.0,
    ) -> None:
        super().__init__(model, data, pool=pool, head=head, head_dim=head_dim, label_smoothing=label_smoothing)
        spec, encoder = self.data_spec, self.nodes.encoder
        if not spec.patch_len:
            raise ValueError(f"{spec.name} has no series; choose another task for it")
        if not spec.num_targets:
            self.monitor, self.monitor_mode = "accuracy", "max"
        self.embedding = SeriesEmbedding(  # type: ignore[assignment]  # in place of that of ids or numbers
            spec.patch_len,
            spec.channels // spec.patch_len,
            int(encoder.options["dim"]),
            stem=stem,
            cls=pool == "cls",
            cls_std=float(encoder.option("position_std")),
        )
        self.register_buffer("target_mean", torch.zeros(spec.num_targets))
        self.register_buffer("target_std", torch.ones(spec.num_targets))

    def setup(self, stage: str) -> None:
        """Reads the mean and the deviation of numbers from the training set; a checkpoint has its own."""
        if stage == "fit" and self.data_spec.num_targets:
            mean, std = self.trainer.datamodule.target_statistics()  # type: ignore[attr-defined]
            self.target_mean.copy_(mean)
            self.target_std.copy_(std)

    def forward(self, batch: Batch) -> Tensor:
        """Patches (B, N, patch_len * features) -> logits (B, classes), or numbers (B, T)."""
        output = super().forward(batch)
        return output * self.target_std + self.target_mean if self.data_spec.num_targets else output

    def embed(self, inputs: Tensor, padding: Padding | None, hidden: Hidden | None = None) -> Tensor:
        """The tokens (B, N, C), with a CLS token in front if pooling reads one."""
        return self.embedding(inputs, padding, hidden)

    @property
    def masked_units(self) -> Units:
        """Patches, whose numbers are to be found."""
        return Units(name="patches", rate=0.5, most=self.max_len, numbers=self.data_spec.channels)

    @property
    def target_scale(self) -> Tensor:
        """The deviations of numbers (T,)."""
        return self.target_std

    @property
    def _kind_of_task(self) -> type[Classification] | type[TargetTask]:
        return TargetTask if self.data_spec.num_targets else Classification

    def build_metrics(self) -> MetricCollection:
        """The metrics of classes or numbers."""
        return self._kind_of_task.build_metrics(self)

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        """The loss of classes or numbers."""
        return self._kind_of_task.loss(self, output, target)

    def evaluation_loss(self, output: Tensor, target: Tensor) -> Tensor:
        """The loss without smoothing."""
        return self._kind_of_task.evaluation_loss(self, output, target)

    def chance(self, targets: Tensor) -> float:
        """The monitored metric of the best constant prediction."""
        return self._kind_of_task.chance(self, targets)

    def columns(self, names: Names) -> tuple[str, ...]:
        """Those of the class or the numbers."""
        return self._kind_of_task.columns(self, names)

    def outcomes(self, outputs: Tensor, names: Names) -> list[Row]:
        """The class or the numbers of each series."""
        return self._kind_of_task.outcomes(self, outputs, names)

    def truths(self, targets: Tensor, names: Names) -> list[Row]:
        """The true class or numbers of each series."""
        return self._kind_of_task.truths(self, targets, names)

    def pictures(self, scored: ScoredSplit) -> Mapping[str, Callable[[Path], None]]:
        """Those of classes or numbers."""
        return self._kind_of_task.pictures(self, scored)

    def constant(self, targets: Tensor) -> tuple[str, Tensor]:
        """The frequencies of the classes, or the mean of each number."""
        return self._kind_of_task.constant(self, targets)

    def simple_models(self, data: DataModule, num_train: int) -> Sequence[SimpleModel]:  # type: ignore[override]
        """Models on spectra, on warped time, and on random convolutions."""
        return self._kind_of_task.simple_models(self, data, num_train)
