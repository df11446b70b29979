"""Graphs through the shared encoder: numbers predicted for a molecule."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn
from torchmetrics import MeanMetric, MetricCollection

from sliceformer_lab.batch import Batch, Graphs
from sliceformer_lab.data.spec import DataSpec
from sliceformer_lab.encoder.base import EncoderBlock
from sliceformer_lab.encoder.factory import build_encoder
from sliceformer_lab.encoder.pool import Pool, PoolMode
from sliceformer_lab.encoder.structure import GraphBias, GraphEmbedding
from tasks.base import ModelConfig, Task


class MeanAbsoluteErrors(MeanMetric):
    """Mean absolute error over the targets that are known (not NaN). (B, T), (B, T) -> scalar."""

    def update(self, value: Tensor, weight: Tensor | float = 1.0) -> None:
        """Called as metrics are, with (output, target)."""
        known = ~cast(Tensor, weight).isnan()
        super().update((value - weight)[known].abs())


class GraphRegression(Task):
    """Graphormer with any attention that takes a bias. Graphs with nodes (B, N, F) -> numbers (B, T) in their own unit.

    Targets are standardised by the training set's mean and deviation, which stay in every checkpoint; the loss is the
    mean absolute error of the standardised targets, those that are missing (NaN) left out. `bias=false` leaves the
    structure of pairs out, for comparison. `zero_padding=false` repeats the published initialisation of padding.
    """

    monitor: ClassVar[str] = "mae"
    monitor_mode: ClassVar[str] = "min"
    kept_type: ClassVar[torch.dtype] = torch.float32
    target_mean: Tensor  # (T,)
    target_std: Tensor  # (T,)

    def __init__(
        self,
        model: ModelConfig | Mapping[str, Any],
        data: DataSpec | Mapping[str, Any],
        *,
        pool: PoolMode = "cls",
        bias: bool = True,
        zero_padding: bool = True,
    ) -> None:
        super().__init__(model, data)
        self.keep_options(pool=pool, bias=bias, zero_padding=zero_padding)
        spec, config = self.data_spec, self.model_config
        if spec.max_len is None or not spec.has_edges or not spec.num_targets:
            raise ValueError(f"{spec.name} has no graphs with numbers to predict; choose another task for it")
        self.max_nodes = spec.max_len
        dim, heads = int(config.encoder["dim"]), int(config.encoder["num_heads"])
        self.embedding = GraphEmbedding(spec.channels, dim, zero_padding=zero_padding)
        self.bias = GraphBias(heads, spec.edge_channels, zero_padding=zero_padding) if bias else None
        self.encoder = build_encoder(config.encoder, config.block, config.attention, self.num_tokens(), num_prefix=1)
        self.pool = Pool(pool, self.encoder.options)
        self.pool.check(cast(EncoderBlock, self.encoder.blocks[-1]).attention)
        self.head = nn.Linear(dim, spec.num_targets)
        self.register_buffer("target_mean", torch.zeros(spec.num_targets))
        self.register_buffer("target_std", torch.ones(spec.num_targets))

    def setup(self, stage: str) -> None:
        """Take the targets' mean and deviation from the training set; a checkpoint brings its own."""
        if stage == "fit":
            mean, std = self.trainer.datamodule.target_statistics()  # type: ignore[attr-defined]
            self.target_mean.copy_(mean)
            self.target_std.copy_(std)

    def num_tokens(self) -> int:
        """The largest graph, and the graph token."""
        return self.max_nodes + 1

    def build_metrics(self) -> MetricCollection:
        """Mean absolute error in the targets' own unit."""
        return MetricCollection({"mae": MeanAbsoluteErrors(nan_strategy="disable")}, compute_groups=False)

    def forward(self, batch: Batch) -> Tensor:
        """Graphs with nodes (B, N, F) -> (B, T) in the targets' unit."""
        graphs = batch.structure
        if graphs is None:
            raise ValueError("a batch of graphs needs its structure")
        tokens = self.embedding(batch.inputs, graphs, batch.padding)
        bias = None if self.bias is None else self.bias(graphs, batch.padding)
        padding = None if batch.padding is None else batch.padding.after_prefix(1)
        reference = None
        if self.pool.needs_reference:
            tokens, reference = self.encoder.with_reference(tokens, padding, bias)
        else:
            tokens = self.encoder(tokens, padding, bias)
        standardised: Tensor = self.head(self.pool(tokens, padding, reference=reference))
        return standardised * self.target_std + self.target_mean

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        """Mean absolute error in deviations of the target, over those that are known."""
        known = ~target.isnan()
        scaled = (output - target) / self.target_std
        return scaled.where(known, 0.0).abs().sum() / known.sum().clamp_min(1)

    def chance(self, targets: Tensor) -> float:
        """Mean absolute error of always predicting the mean of these targets."""
        return float((targets - targets.nanmean(dim=0)).abs().nanmean())

    def example(self) -> Batch:
        """One graph of the largest size, a chain, for counting costs."""
        spec, size = self.data_spec, self.max_nodes
        zero = torch.zeros(1, dtype=torch.long, device=self.device)
        steps = torch.arange(size - 1, device=self.device)
        edge_index = torch.stack([torch.cat([steps, steps + 1]), torch.cat([steps + 1, steps])])
        distances = (torch.arange(size, device=self.device)[:, None] - torch.arange(size, device=self.device)).abs()
        graphs = Graphs(
            edge_index,
            torch.zeros(edge_index.shape[1], spec.edge_channels, dtype=torch.long, device=self.device),
            distances[None],
            torch.zeros(1, size, size, spec.num_hops, spec.edge_channels, dtype=torch.long, device=self.device),
        )
        nodes = torch.zeros(1, size, spec.channels, dtype=torch.long, device=self.device)
        return Batch(nodes, torch.zeros(1, spec.num_targets, device=self.device), zero, structure=graphs)
