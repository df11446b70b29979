"""Peptides: functions and structures, from tokens for atoms or for atoms and bonds."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor
from torchmetrics import MetricCollection
from torchmetrics.classification import MultilabelAveragePrecision
from torchmetrics.utilities.data import dim_zero_cat

from sliceformer_lab.batch import Batch, Graphs, Padding
from sliceformer_lab.config.checked import ModelNodes
from sliceformer_lab.config.option_types import Count
from sliceformer_lab.data.spec import DataSpec
from sliceformer_lab.encoder.graph_tokens import GraphTokens
from sliceformer_lab.encoder.pool import PoolMode
from sliceformer_lab.tasks.graph import GraphTask, NumberTask

UNKNOWN = -1  # a missing label

log = logging.getLogger(__name__)


class MeanAveragePrecision(MultilabelAveragePrecision):
    """Mean over labels of average precision, as the evaluator of the Open Graph Benchmark. (B, T), (B, T) -> scalar.

    Missing targets (NaN) are ignored, as are labels whose known targets are all equal; NaN if no label remains.
    """

    def __init__(self, num_labels: int) -> None:
        super().__init__(num_labels, average="none", ignore_index=UNKNOWN)

    def update(self, preds: Tensor, target: Tensor) -> None:
        """Logits and targets. Applies the sigmoid to every batch; torchmetrics would apply it to some batches only."""
        super().update(preds.sigmoid(), target.nan_to_num(UNKNOWN).long())

    def compute(self) -> Tensor:  # type: ignore[override]
        target = dim_zero_cat(self.target)
        scored = (target == 1).any(dim=0) & (target == 0).any(dim=0)
        precisions: Tensor = super().compute()
        return precisions[scored].mean()


class PeptideTask(GraphTask):
    """Peptides with tokens for their atoms, or for atoms and bonds as in SAMSA, and with position encodings.

    The benchmark compares models of at most `max_parameters`; a larger model is trained with a warning.
    """

    def __init__(
        self,
        model: ModelNodes | Mapping[str, Any],
        data: DataSpec | Mapping[str, Any],
        *,
        pool: PoolMode = "mean",
        tokens: Literal["nodes", "nodes_edges"] = "nodes",
        max_parameters: Count | None = 500_000,
    ) -> None:
        super().__init__(model, data)
        self.keep_options(pool=pool, tokens=tokens, max_parameters=max_parameters)
        spec = self.data_spec
        self.with_edges, self.graph_token = tokens == "nodes_edges", pool == "cls"
        self.max_parameters = max_parameters
        self.embedding = GraphTokens(
            spec.node_values,
            spec.edge_values,
            spec.position_channels,
            int(self.nodes.encoder.options["dim"]),
            edges=self.with_edges,
            graph_token=self.graph_token,
        )
        self.build(pool, num_prefix=int(self.graph_token))

    def setup(self, stage: str) -> None:
        """Warns if the model is larger than the benchmark allows."""
        super().setup(stage)
        count = sum(parameter.numel() for parameter in self.parameters())
        if stage == "fit" and self.max_parameters is not None and count > self.max_parameters:
            log.warning(
                f"{count:,} parameters are more than the {self.max_parameters:,} of the benchmark, so the results are "
                "not comparable; lower encoder.dim, or set task.max_parameters=null"
            )

    def num_tokens(self) -> int:
        """The nodes of the largest graph, and as many edges, which is more than a peptide has."""
        return (self.data_spec.max_len or 0) * (1 + self.with_edges) + self.graph_token

    def embed(self, batch: Batch, graphs: Graphs) -> tuple[Tensor, Padding | None, Tensor | None]:
        """Tokens (B, M, C) and their padding. The tokens encode the structure, so there is no bias."""
        tokens, padding = self.embedding(batch.inputs, graphs, batch.padding)
        return tokens, padding, None


class PeptideNumbers(PeptideTask, NumberTask):
    """Numbers of peptides, by mean absolute error."""


class PeptideLabels(PeptideTask):
    """Multi-label classification of peptides. Graphs with nodes (B, N, F) -> logits (B, T).

    The loss is binary cross-entropy over the known targets (not NaN).
    """

    monitor: ClassVar[str] = "average_precision"
    kept_type: ClassVar[torch.dtype] = torch.float32  # rounding would tie what the metric ranks

    def build_metrics(self) -> MetricCollection:
        """The mean of the labels' average precisions."""
        return MetricCollection(
            {"average_precision": MeanAveragePrecision(self.data_spec.num_targets)}, compute_groups=False
        )

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        """Binary cross-entropy, averaged over the known targets."""
        known = ~target.isnan()
        each = F.binary_cross_entropy_with_logits(output, target.nan_to_num(), reduction="none")
        return each.where(known, 0.0).sum() / known.sum().clamp_min(1)

    def chance(self, targets: Tensor) -> float:
        """Average precision of equal scores for all peptides: the mean of the labels' frequencies."""
        return float(targets.nanmean(dim=0).nanmean())
