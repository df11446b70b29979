"""Numbers, labels or classes of graphs, with Graphormer's tokens and bias."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import torch
from pytorch_lightning.trainer.states import TrainerFn
from torch import Tensor, nn

from sliceformer_lab.batch import Batch, Edges, Graphs, Padding
from sliceformer_lab.data.graphs.store import GraphSplit
from sliceformer_lab.encoder.base import EncoderBlock
from sliceformer_lab.encoder.factory import build_encoder
from sliceformer_lab.encoder.graph_tokens import FeatureEmbedding, edges_among_tokens
from sliceformer_lab.encoder.graphormer import GraphBias, GraphEmbedding
from sliceformer_lab.encoder.hidden import Hidden
from sliceformer_lab.encoder.linear_init import initialise_head
from sliceformer_lab.encoder.pool import Pool, PoolMode
from sliceformer_lab.encoder.whole_features import WholeFeatures
from sliceformer_lab.tasks.base import DataSizes, ModelConfig
from sliceformer_lab.tasks.masked import Maskable, Units
from sliceformer_lab.tasks.target_task import ClassWeights, TargetTask


class GraphTask(Maskable, TargetTask):
    """Graphs with nodes (B, N, F) -> numbers or logits of labels (B, T), or logits (B, classes).

    A subclass embeds them as tokens.
    """

    pool_over_padding = False

    def build(self, pool: PoolMode, *, num_prefix: int, tokens_per_node: int = 1) -> None:
        """Creates encoder, pooling and head for tokens whose first `num_prefix` are not from the graph.

        Raises ValueError for data that are not graphs with numbers to predict.
        """
        spec, nodes = self.data_spec, self.nodes
        if spec.max_len is None or not spec.has_edges or not self.num_outputs:
            raise ValueError(f"{spec.name} has no graphs with targets to predict; choose another task for it")
        self.num_prefix = num_prefix
        max_len = spec.max_len * tokens_per_node + num_prefix
        self.encoder = build_encoder(nodes.encoder, nodes.block, nodes.attention, max_len, num_prefix=num_prefix)
        self.pool = Pool(pool, self.encoder.options)
        blocks = [cast(EncoderBlock, block) for block in self.encoder.blocks]
        self.pool.check(blocks[-1].attention)
        dim, count = self.dim, spec.context_channels
        self.whole = WholeFeatures(count, dim, self.encoder.options.dropout) if count else None
        self.head = nn.Linear(dim if self.whole is None else 2 * dim, self.num_outputs)
        initialise_head(self.head, self.encoder.options)
        self.convolves = any(block.needs_edges for block in blocks)
        reads_edge_features = any(block.reads_edge_features for block in blocks)
        self.edge_features = FeatureEmbedding(spec.edge_values, dim) if reads_edge_features else None

    def setup(self, stage: str) -> None:
        """Reads the statistics of targets and of features of whole graphs; a checkpoint has them."""
        super().setup(stage)
        if stage == TrainerFn.FITTING and self.whole is not None:
            self.whole.standardise(cast(GraphSplit, self._data.splits["train"]).contexts())

    @abstractmethod
    def embed(
        self, batch: Batch, graphs: Graphs, hidden: Hidden | None = None
    ) -> tuple[Tensor, Padding | None, Tensor | None]:
        """Tokens (B, M, C), with the nodes after the prefix, their padding, and a bias (B, H, M, M) or None."""

    def forward(self, batch: Batch) -> Tensor:
        """Graphs with nodes (B, N, F) -> numbers or logits (B, T). Raises ValueError for a batch without structure."""
        graphs = structure_of(batch)
        tokens, padding, bias = self.embed(batch, graphs)
        edges = self._build_edges(batch, graphs, tokens.shape[1]) if self.convolves else None
        pooled = self.encoder.pooled(self.pool, tokens, padding, bias, edges, with_padding=self.pool_over_padding)
        if self.whole is not None:
            pooled = torch.cat([pooled, self.whole(batch.context)], dim=1)
        return self.in_own_unit(self.head(pooled))

    def _build_edges(self, batch: Batch, graphs: Graphs, num_tokens: int) -> Edges:
        shape = (batch.inputs.shape[0], batch.inputs.shape[1])
        edges = edges_among_tokens(graphs, shape, batch.padding, num_tokens, self.num_prefix)
        if self.edge_features is None:
            return edges
        return replace(edges, features=graphs.visible(self.edge_features(graphs.edge_features)))

    @property
    def masked_units(self) -> Units:
        """Atoms, whose kind is to be found: the first feature of a node."""
        spec = self.data_spec
        return Units(name="atoms", rate=0.15, most=spec.max_len or 1, classes=spec.node_values[0])

    def unit_targets(self, units: Tensor) -> Tensor:
        """The kinds of the atoms (B, N)."""
        return units[..., 0]

    def encode_units(self, batch: Batch, hidden: Hidden) -> Tensor:
        """The nodes after the encoder (B, N, C). The features of bonds between two hidden atoms are hidden as well."""
        graphs = structure_of(batch)
        graphs = replace(graphs, hidden_edges=hidden.mask.flatten()[graphs.edge_index].all(dim=0))
        tokens, padding, bias = self.embed(batch, graphs, hidden)
        edges = self._build_edges(batch, graphs, tokens.shape[1]) if self.convolves else None
        encoded = self.encoder(tokens, padding, bias, edges)
        return encoded[:, self.num_prefix : self.num_prefix + batch.inputs.shape[1]]

    def kept_weights(self) -> set[str]:
        """Those of the encoder and of all embeddings, without the graph token."""
        parts = ("embedding.", "encoder.", "bias.", "edge_features.")
        return {n for n in self.state_dict() if n.startswith(parts) and not n.endswith(".graph_token")}

    def example(self) -> Batch:
        """One graph of the largest size, a chain, to count costs with."""
        spec = self.data_spec
        size = spec.max_len or 1
        zero = torch.zeros(1, dtype=torch.long, device=self.device)
        place = torch.arange(size, device=self.device)
        steps = place[:-1]
        edge_index = torch.stack([torch.cat([steps, steps + 1]), torch.cat([steps + 1, steps])])
        distances = (place[:, None] - place).abs()[None] if spec.needs_bias else None
        path_edges = zero.new_zeros(1, size, size, spec.num_hops) if spec.needs_bias else None
        encoded = spec.position_channels
        positions = torch.zeros(1, size, encoded, device=self.device) if encoded else None
        edge_features = zero.new_zeros(edge_index.shape[1], spec.edge_channels)
        graphs = Graphs(edge_index, edge_features, distances, path_edges, positions)
        target = torch.zeros(1, self.num_outputs, device=self.device)
        whole = target.new_zeros(1, spec.context_channels) if spec.context_channels else None
        return Batch(zero.new_zeros(1, size, spec.channels), target, zero, structure=graphs, context=whole)


class Graphormer(GraphTask):
    """Graphormer with any attention that takes a bias. Graphs with nodes (B, N, F) -> numbers or logits (B, T).

    `bias=false` omits the pairwise bias, so that any attention fits. `zero_padding=false` repeats the published
    initialisation of padding. With `standardise=false` the loss is in the unit of the numbers.
    """

    def __init__(
        self,
        model: ModelConfig,
        data: DataSizes,
        *,
        pool: PoolMode = "cls",
        bias: bool = True,
        zero_padding: bool = True,
        standardise: bool = True,
        class_weights: ClassWeights | None = None,
    ) -> None:
        super().__init__(model, data)
        self.standardise = standardise
        self.weigh_classes(class_weights)
        spec, heads = self.data_spec, int(self.nodes.encoder.options["num_heads"])
        self.embedding = GraphEmbedding(spec.channels, self.dim, zero_padding=zero_padding)
        self.bias = GraphBias(heads, spec.edge_channels, zero_padding=zero_padding) if bias else None
        self.build(pool, num_prefix=1)

    @classmethod
    def passes_bias(cls, options: Mapping[str, Any]) -> bool:
        """Whether the option `bias` is on, which is its default."""
        return bool(options.get("bias", True))

    def embed(
        self, batch: Batch, graphs: Graphs, hidden: Hidden | None = None
    ) -> tuple[Tensor, Padding | None, Tensor | None]:
        """The graph token and one token per node (B, 1 + N, C), and their bias (B, H, 1 + N, 1 + N) or None."""
        bias = None if self.bias is None else self.bias(graphs, batch.padding)
        padding = None if batch.padding is None else batch.padding.after_prefix(1)
        return self.embedding(batch.inputs, graphs, batch.padding, hidden), padding, bias


def structure_of(batch: Batch) -> Graphs:
    """The structure of a batch of graphs. Raises ValueError if it has none."""
    if batch.structure is None:
        raise ValueError("a batch of graphs needs its structure")
    return batch.structure
