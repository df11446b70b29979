"""Graphs as tokens of nodes and, optionally, of edges; and the edges of a graph in terms of its tokens."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sliceformer_lab.attention.base import ComputedBuffers
from sliceformer_lab.batch import Edges, Graphs, Padding, fill_padding
from sliceformer_lab.encoder.hidden import Hidden
from sliceformer_lab.encoder.layers import Mlp, without_decay


class FeatureEmbedding(ComputedBuffers):
    """The sum of one vector for each feature, whose number of values is in `values`. Ids (..., F) -> (..., dim)."""

    offsets: Tensor

    def __init__(self, values: Sequence[int], dim: int) -> None:
        super().__init__()
        self.table = nn.Embedding(sum(values), dim)
        nn.init.normal_(self.table.weight, std=len(values) ** -0.5)
        first = torch.tensor([0, *values[:-1]]).cumsum(0)
        self.register_buffer("offsets", first, persistent=False)

    def forward(self, features: Tensor) -> Tensor:
        return self.table(features + self.offsets).sum(dim=-2)


class GraphTokens(nn.Module):
    """One token per node and, with `edges`, one per undirected edge. Nodes (B, N, F) -> (B, M, dim), padding.

    A node is the sum of its features' vectors and a linear map of its position encodings. An edge is the sum of its
    features' vectors, a vector that all edges share, and a linear map of the mean of its two nodes, so its direction
    does not matter. With `graph_token`, a learned token comes first.
    Source: SAMSA, section 5, for nodes and edges as tokens; the content of an edge token is our choice.
    """

    def __init__(
        self,
        node_values: Sequence[int],
        edge_values: Sequence[int],
        position_channels: int,
        dim: int,
        *,
        edges: bool,
        graph_token: bool,
    ) -> None:
        super().__init__()
        self.nodes = FeatureEmbedding(node_values, dim)
        self.positions = nn.Linear(position_channels, dim, bias=False) if position_channels else None
        self.edges = FeatureEmbedding(edge_values, dim) if edges else None
        self.ends = nn.Linear(dim, dim) if edges else None  # its bias is the vector that all edges share
        self.graph_token = without_decay(nn.Parameter(torch.randn(1, 1, dim) * 0.02)) if graph_token else None

    def forward(
        self, nodes: Tensor, graphs: Graphs, padding: Padding | None = None, hidden: Hidden | None = None
    ) -> tuple[Tensor, Padding | None]:
        """Raises ValueError if the positions of the nodes are missing. Hidden nodes keep theirs."""
        x = self.nodes(nodes) if hidden is None else hidden.cover(self.nodes(nodes))
        if self.positions is not None:
            if graphs.positions is None:
                raise ValueError("graph tokens need the positions of the nodes")
            x = x + self.positions(graphs.positions)
        x = fill_padding(x, padding)
        if self.edges is not None and self.ends is not None:
            x, padding = self._with_edges(x, graphs, padding, self.edges, self.ends)
        if self.graph_token is not None:
            x = torch.cat([self.graph_token.expand(len(x), -1, -1), x], dim=1)
            padding = None if padding is None else padding.after_prefix(1)
        return x, padding

    def _with_edges(
        self, x: Tensor, graphs: Graphs, padding: Padding | None, embed: nn.Module, ends: nn.Module
    ) -> tuple[Tensor, Padding]:
        """Inserts edge tokens after the real nodes of each graph: (B, N, C) -> (B, M, C)."""
        once = graphs.edge_index[0] < graphs.edge_index[1]  # one of both directions; no atom is bound to itself
        source, target = graphs.edge_index[:, once]
        flat = x.flatten(0, 1)
        features = graphs.visible(embed(graphs.edge_features[once]), once)
        tokens = features + ends((flat[source] + flat[target]) / 2)
        return after_nodes(x, padding, tokens, source // x.shape[1])


class RandomGraphTokens(nn.Module):
    """One token per node and directed edge, with random vectors as identity. Nodes (B, N, F) -> (B, M, dim), padding.

    Every pass, in evaluation too, draws a left and a right vector for each node. A node reads both, an edge the left
    one of its source minus the right one of its target; both add an MLP of their features and end in an MLP.
    Source: SAMSA's published code. Its nodes read no position encodings unless asked.
    """

    def __init__(
        self, node_values: Sequence[int], edge_values: Sequence[int], position_channels: int, dim: int
    ) -> None:
        super().__init__()
        self.nodes = nn.Sequential(FeatureEmbedding(node_values, dim), nn.GELU(), nn.Linear(dim, dim))
        self.edges = nn.Sequential(FeatureEmbedding(edge_values, dim), nn.GELU(), nn.Linear(dim, dim))
        self.positions = nn.Linear(position_channels, dim, bias=False) if position_channels else None
        self.scales = nn.Parameter(torch.ones(2, dim))  # of left and right vectors, before the softplus
        self.node_mlp = Mlp(dim, 4 * dim, act_layer=nn.GELU)
        self.edge_mlp = Mlp(dim, 4 * dim, act_layer=nn.GELU)

    def forward(
        self, nodes: Tensor, graphs: Graphs, padding: Padding | None = None, hidden: Hidden | None = None
    ) -> tuple[Tensor, Padding]:
        """Raises ValueError if the positions of the nodes are missing. Hidden nodes keep theirs."""
        x = self.nodes(nodes) if hidden is None else hidden.cover(self.nodes(nodes))
        if self.positions is not None:
            if graphs.positions is None:
                raise ValueError("graph tokens need the positions of the nodes")
            x = x + self.positions(graphs.positions)
        left, right = torch.randn_like(x.expand(2, *x.shape)) * F.softplus(self.scales)[:, None, None]
        source, target = graphs.edge_index
        features = graphs.visible(self.edges(graphs.edge_features))
        edges = features + left.flatten(0, 1)[source] - right.flatten(0, 1)[target]
        x = fill_padding(self.node_mlp(x + left + right), padding)
        return after_nodes(x, padding, self.edge_mlp(edges), source // x.shape[1])


def after_nodes(x: Tensor, padding: Padding | None, tokens: Tensor, row: Tensor) -> tuple[Tensor, Padding]:
    """Nodes (B, N, C) and edge tokens (E, C) of the graphs `row` (E,), in their order -> (B, M, C) and its padding.

    The edge tokens of a graph follow its real nodes.
    """
    size, width = x.shape[:2]
    order = row.argsort(stable=True)
    tokens, row = tokens[order], row[order]
    counts = torch.bincount(row, minlength=size)
    nodes = counts.new_full((size,), width) if padding is None else padding.lengths
    lengths = nodes + counts
    longest = int(lengths.max())
    number = torch.arange(len(row), device=x.device) - (counts.cumsum(0) - counts)[row]  # within its graph
    places = row * longest + nodes[row] + number
    x = F.pad(x, (0, 0, 0, longest - width)).flatten(0, 1).index_copy(0, places, tokens.to(x.dtype))
    mask = torch.arange(longest, device=x.device) < lengths[:, None]
    return torch.unflatten(x, 0, (size, longest)), Padding(lengths, mask)


def edges_among_tokens(
    graphs: Graphs, shape: tuple[int, int], padding: Padding | None, num_tokens: int, num_prefix: int
) -> Edges:
    """The edges of nodes (B, N) = `shape` among tokens (B, num_tokens); `num_prefix` tokens precede the nodes."""
    size, width = shape
    places = torch.arange(size * width, device=graphs.edge_index.device)
    if padding is None:
        index = graphs.edge_index
    else:
        real = padding.mask.flatten()
        index, places = (real.cumsum(0) - 1)[graphs.edge_index], places[real]
    return Edges(places // width * num_tokens + num_prefix + places % width, index)
