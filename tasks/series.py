"""A class or a number of a series: patches of its time steps, encoder, pooling and head."""

from __future__ import annotations

from torch import Tensor

from sliceformer_lab.batch import Padding
from sliceformer_lab.config.option_types import Count, Fraction
from sliceformer_lab.encoder.hidden import Hidden
from sliceformer_lab.encoder.pool import PoolMode
from sliceformer_lab.encoder.series_embed import SeriesEmbedding, SeriesStem
from sliceformer_lab.tasks.base import DataSizes, ModelConfig
from sliceformer_lab.tasks.masked import Units
from sliceformer_lab.tasks.sequence import Head, SequenceClassification
from sliceformer_lab.tasks.target_task import ClassWeights


class SeriesTask(SequenceClassification):
    """A sequence encoder over patches of a series (B, N, F) -> logits (B, classes), or numbers (B, T).

    The data say which. Raises ValueError for data that are no series.
    """

    def __init__(
        self,
        model: ModelConfig,
        data: DataSizes,
        *,
        stem: SeriesStem = "conv",
        pool: PoolMode = "mean",
        head: Head = "linear",
        head_dim: Count | None = None,
        label_smoothing: Fraction = 0.0,
        class_weights: ClassWeights | None = None,
    ) -> None:
        super().__init__(
            model,
            data,
            pool=pool,
            head=head,
            head_dim=head_dim,
            label_smoothing=label_smoothing,
            class_weights=class_weights,
        )
        spec = self.data_spec
        if not spec.patch_len:
            raise ValueError(f"{spec.name} has no series; choose another task for it")
        self.embedding = SeriesEmbedding(  # type: ignore[assignment]  # in place of that of ids or numbers
            spec.patch_len,
            spec.channels // spec.patch_len,
            self.dim,
            stem=stem,
            cls=pool == "cls",
            cls_std=float(self.nodes.encoder.option("position_std")),
        )

    def embed(self, inputs: Tensor, padding: Padding | None, hidden: Hidden | None = None) -> Tensor:
        """The tokens (B, N, C), with a CLS token in front if pooling reads one."""
        return self.embedding(inputs, padding, hidden)

    @property
    def masked_units(self) -> Units:
        """Patches, whose numbers are to be found."""
        return Units(name="patches", rate=0.5, most=self.max_len, numbers=self.data_spec.channels)
