"""Peptides: functions and structures, from tokens for atoms or for atoms and bonds."""

from __future__ import annotations

import logging
from typing import Literal

from torch import Tensor
from torchmetrics import MetricCollection

from sliceformer_lab.batch import Batch, Graphs, Padding
from sliceformer_lab.config.option_types import Count
from sliceformer_lab.encoder.graph_tokens import GraphTokens, RandomGraphTokens
from sliceformer_lab.encoder.hidden import Hidden
from sliceformer_lab.encoder.pool import PoolMode
from sliceformer_lab.tasks.base import DataSizes, ModelConfig
from sliceformer_lab.tasks.graph import GraphTask
from sliceformer_lab.tasks.metrics import BatchPrecision
from sliceformer_lab.tasks.targets import Labels, NumberLoss, Numbers, TargetKind

log = logging.getLogger(__name__)

Tokens = Literal["nodes", "nodes_edges", "random"]


class PeptideTask(GraphTask):
    """Peptides with tokens for their atoms, or for atoms and bonds as in SAMSA, and with position encodings.

    `tokens=random` gives atoms and bonds random vectors as identity, in evaluation too, as SAMSA's published code does;
    so does `pool_over_padding`, with which pooling includes padding, as 0.
    The benchmark compares models of about 500,000 parameters, and its own have up to 509,000. A model of more than
    `max_parameters` is trained with a warning.
    """

    def __init__(
        self,
        model: ModelConfig,
        data: DataSizes,
        *,
        pool: PoolMode = "mean",
        tokens: Tokens = "nodes",
        pool_over_padding: bool = False,
        max_parameters: Count | None = 515_000,
    ) -> None:
        super().__init__(model, data)
        spec = self.data_spec
        self.graph_token, self.pool_over_padding = pool == "cls", pool_over_padding
        self.max_parameters = max_parameters
        inputs = (spec.node_values, spec.edge_values, spec.position_channels, self.dim)
        self.embedding: GraphTokens | RandomGraphTokens
        if tokens == "random":
            if self.graph_token:
                raise ValueError("tokens=random has no graph token for pool=cls; choose pool=softmax or mean")
            self.embedding = RandomGraphTokens(*inputs)
        else:
            self.embedding = GraphTokens(*inputs, edges=tokens == "nodes_edges", graph_token=self.graph_token)
        # a peptide has fewer edges than nodes, and `random` has a token for each direction
        per_node = {"nodes": 1, "nodes_edges": 2, "random": 3}[tokens]
        self.build(pool, num_prefix=int(self.graph_token), tokens_per_node=per_node)

    def setup(self, stage: str) -> None:
        """Warns if the model is larger than the benchmark allows."""
        super().setup(stage)
        count = sum(parameter.numel() for parameter in self.parameters())
        if stage == "fit" and self.max_parameters is not None and count > self.max_parameters:
            log.warning(
                f"{count:,} parameters are more than the {self.max_parameters:,} of the benchmark, so the results are "
                "not comparable; lower encoder.dim, or set task.max_parameters=null"
            )

    def embed(
        self, batch: Batch, graphs: Graphs, hidden: Hidden | None = None
    ) -> tuple[Tensor, Padding | None, Tensor | None]:
        """Tokens (B, M, C) and their padding. The tokens encode the structure, so there is no bias."""
        tokens, padding = self.embedding(batch.inputs, graphs, batch.padding, hidden)
        return tokens, padding, None


class PeptideNumbers(PeptideTask):
    """Numbers of peptides, by mean absolute error; `number_loss=smooth_l1` trains as SAMSA's published code does."""

    number_loss: NumberLoss = "l1"

    def __init__(
        self,
        model: ModelConfig,
        data: DataSizes,
        *,
        pool: PoolMode = "mean",
        tokens: Tokens = "nodes",
        pool_over_padding: bool = False,
        max_parameters: Count | None = 515_000,
        number_loss: NumberLoss = "l1",
    ) -> None:
        super().__init__(
            model, data, pool=pool, tokens=tokens, pool_over_padding=pool_over_padding, max_parameters=max_parameters
        )
        self.number_loss = number_loss

    @property
    def kind(self) -> TargetKind:
        return Numbers(form=self.number_loss)


class PeptideLabels(PeptideTask):
    """Labels of peptides, by average precision, as the benchmark scores them.

    `average_precision_samsa` is the other metric of SAMSA's published code.
    """

    def build_metrics(self) -> MetricCollection:
        """The metrics of labels, and SAMSA's."""
        metrics = super().build_metrics()
        metrics.add_metrics({"average_precision_samsa": BatchPrecision()})
        return metrics

    @property
    def kind(self) -> TargetKind:
        """Labels, ranked by average precision."""
        return Labels(monitor="average_precision")
