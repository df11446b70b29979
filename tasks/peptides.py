"""Peptides: functions and structures, from tokens for atoms or for atoms and bonds."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Literal

from torch import Tensor

from sliceformer_lab.batch import Batch, Graphs, Padding
from sliceformer_lab.config.checked import ModelNodes
from sliceformer_lab.config.option_types import Count
from sliceformer_lab.data.spec import DataSpec
from sliceformer_lab.encoder.graph_tokens import GraphTokens
from sliceformer_lab.encoder.pool import PoolMode
from sliceformer_lab.tasks.graph import GraphTask
from sliceformer_lab.tasks.targets import Labels, Numbers, TargetKind

log = logging.getLogger(__name__)


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


class PeptideNumbers(PeptideTask):
    """Numbers of peptides, by mean absolute error."""

    @property
    def kind(self) -> TargetKind:
        """Numbers."""
        return Numbers()


class PeptideLabels(PeptideTask):
    """Labels of peptides, by average precision, as the benchmark scores them."""

    @property
    def kind(self) -> TargetKind:
        """Labels, ranked by average precision."""
        return Labels(monitor="average_precision")
