"""Graphs as Graphormer sees them: nodes by features and degree, pairs of nodes by distance and the edges between."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sliceformer_lab.batch import Edges, Graphs, Padding
from sliceformer_lab.encoder.hints import without_decay

VALUES = 512  # ids that every feature, distance and degree has room for, 0 being padding
MAX_HOPS = 128  # edges of a path that have a matrix of their own


class GraphEmbedding(nn.Module):
    """One token per node and a learned graph token in front. Features (B, N, F) -> (B, 1 + N, dim).

    A node is the sum of one vector for each feature and two for its degree. Both degree tables are read with the number
    of outgoing edges, as the published code does; molecules have as many incoming ones. Padding is 0, or with
    `zero_padding=False` what the published initialisation leaves there: random and frozen.
    Source: Graphormer (Ying et al. 2021), equation (5).
    """

    def __init__(self, num_features: int, dim: int, *, zero_padding: bool = True) -> None:
        super().__init__()
        self.features = _table(VALUES * num_features + 1, dim, zero_padding)
        self.in_degree = _table(VALUES, dim, zero_padding)
        self.out_degree = _table(VALUES, dim, zero_padding)
        self.graph_token = without_decay(nn.Parameter(torch.randn(1, 1, dim) * 0.02))

    def forward(self, nodes: Tensor, graphs: Graphs, padding: Padding | None = None) -> Tensor:
        ids = nodes + 2 + VALUES * torch.arange(nodes.shape[2], device=nodes.device)
        degrees = torch.bincount(graphs.edge_index[0], minlength=nodes[..., 0].numel()).view(nodes.shape[:2]) + 1
        if padding is not None:
            ids, degrees = ids.masked_fill(~padding.mask[..., None], 0), degrees.masked_fill(~padding.mask, 0)
        x = self.features(ids).sum(dim=2) + self.in_degree(degrees) + self.out_degree(degrees)
        return torch.cat([self.graph_token.expand(len(x), -1, -1), x], dim=1)


class GraphBias(nn.Module):
    """What every head adds to a pair of tokens: distance, edges on the path, the graph token. -> (B, H, 1+N, 1+N).

    Each edge of the first hops of the shortest path gives the mean of its features' vectors (H), times the hop's
    matrix; their sum is divided by the number of hops. One number per head stands at the graph token's row and column.
    `zero_padding=False` leaves padding rows of the tables random and frozen, so that missing hops count.
    Source: Graphormer (Ying et al. 2021), equations (6) and (7), the matrix per hop is of the published code.
    """

    def __init__(self, num_heads: int, num_edge_features: int, *, zero_padding: bool = True) -> None:
        super().__init__()
        self.distance = _table(VALUES, num_heads, zero_padding)
        self.edge = _table(VALUES * num_edge_features + 1, num_heads, zero_padding)
        self.hop = without_decay(nn.Parameter(torch.randn(MAX_HOPS, num_heads, num_heads) * 0.02))
        self.virtual = without_decay(nn.Parameter(torch.randn(num_heads) * 0.02))

    def forward(self, graphs: Graphs, padding: Padding | None = None) -> Tensor:
        """Raises ValueError if the graphs come without distances."""
        if graphs.distances is None:
            raise ValueError("a graph bias needs the distances between nodes")
        distances = torch.where(graphs.distances < 0, VALUES - 1, graphs.distances + 1)
        if padding is not None:
            real = padding.mask[:, :, None] & padding.mask[:, None, :]
            distances = distances.masked_fill(~real, 0)
        pairs = self.distance(distances)  # (B, N, N, H)
        if graphs.path_features is not None:
            pairs = pairs + self._along_paths(graphs.path_features, distances)
        size = pairs.shape[1] + 1
        bias: Tensor = pairs.new_zeros(len(pairs), pairs.shape[3], size, size)
        bias[:, :, 1:, 1:] = pairs.permute(0, 3, 1, 2)
        bias[:, :, 0, :] = self.virtual[:, None]
        bias[:, :, 1:, 0] = self.virtual[:, None]
        return bias

    def _along_paths(self, features: Tensor, distances: Tensor) -> Tensor:
        """Features (B, N, N, K, G), -1 where a path has ended, and distance ids (B, N, N) -> (B, N, N, H)."""
        hops = features.shape[3]
        ids = features + 3 + VALUES * torch.arange(features.shape[4], device=features.device)
        edges = self.edge(ids.masked_fill(features < 0, 0)).mean(dim=4)  # (B, N, N, K, H)
        summed = torch.einsum("bijkh,khg->bijg", edges, self.hop[:hops])
        steps = (distances - 1).clamp(1, hops)  # ids count from 1, the node itself
        return summed / steps[..., None]


class FeatureEmbedding(nn.Module):
    """The sum of one vector for each feature, each with as many as it has `values`. Ids (..., F) -> (..., dim)."""

    offsets: Tensor

    def __init__(self, values: Sequence[int], dim: int) -> None:
        super().__init__()
        self.table = nn.Embedding(sum(values), dim)
        nn.init.normal_(self.table.weight, std=len(values) ** -0.5)
        first = torch.tensor([0, *values[:-1]]).cumsum(0)
        self.register_buffer("offsets", first, persistent=False)

    def forward(self, features: Tensor) -> Tensor:
        summed: Tensor = self.table(features + self.offsets).sum(dim=-2)
        return summed


class GraphTokens(nn.Module):
    """One token per node and, if wanted, one per undirected edge after them. Nodes (B, N, F) -> (B, M, dim), padding.

    A node is the sum of its features' vectors and of a linear map of its position's encodings. An edge is the sum of
    its own features' vectors, one that says that it is an edge, and a linear map of its two nodes' mean, so that its
    direction does not matter. A graph token may stand in front.
    Source: SAMSA, section 5, for nodes and edges as tokens; what is in an edge's is not said there and is ours.
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
        self.ends = nn.Linear(dim, dim) if edges else None  # its bias is what all edges share
        self.graph_token = without_decay(nn.Parameter(torch.randn(1, 1, dim) * 0.02)) if graph_token else None

    def forward(self, nodes: Tensor, graphs: Graphs, padding: Padding | None = None) -> tuple[Tensor, Padding | None]:
        """Raises ValueError if the graphs come without the positions that are asked for."""
        x = self.nodes(nodes)
        if self.positions is not None:
            if graphs.positions is None:
                raise ValueError("graph tokens need the positions of the nodes")
            x = x + self.positions(graphs.positions)
        if padding is not None:
            x = x.masked_fill(~padding.mask[..., None], 0)
        if self.edges is not None and self.ends is not None:
            x, padding = self._with_edges(x, graphs, padding, self.edges, self.ends)
        if self.graph_token is not None:
            x = torch.cat([self.graph_token.expand(len(x), -1, -1), x], dim=1)
            padding = None if padding is None else padding.after_prefix(1)
        return x, padding

    def _with_edges(
        self, x: Tensor, graphs: Graphs, padding: Padding | None, embed: nn.Module, ends: nn.Module
    ) -> tuple[Tensor, Padding]:
        """Put edge tokens right after the real nodes of each graph: (B, N, C) -> (B, M, C)."""
        size, width = x.shape[:2]
        once = graphs.edge_index[0] < graphs.edge_index[1]  # of both directions; no atom is bound to itself
        source, target = graphs.edge_index[:, once]
        row = source // width
        counts = torch.bincount(row, minlength=size)
        nodes = counts.new_full((size,), width) if padding is None else padding.lengths
        lengths = nodes + counts
        longest = int(lengths.max())
        flat = x.flatten(0, 1)
        tokens = embed(graphs.edge_features[once]) + ends((flat[source] + flat[target]) / 2)
        number = torch.arange(len(row), device=x.device) - (counts.cumsum(0) - counts)[row]  # within its graph
        places = row * longest + nodes[row] + number
        x = F.pad(x, (0, 0, 0, longest - width)).flatten(0, 1).index_copy(0, places, tokens.to(x.dtype))
        mask = torch.arange(longest, device=x.device) < lengths[:, None]
        return torch.unflatten(x, 0, (size, longest)), Padding(lengths, mask)


def edges_among_tokens(
    graphs: Graphs, shape: tuple[int, int], padding: Padding | None, num_tokens: int, num_prefix: int
) -> Edges:
    """The edges of nodes (B, N) = `shape` that stand among (B, num_tokens) tokens after `num_prefix` others."""
    size, width = shape
    places = torch.arange(size * width, device=graphs.edge_index.device)
    if padding is None:
        index = graphs.edge_index
    else:
        real = padding.mask.flatten()
        index, places = (real.cumsum(0) - 1)[graphs.edge_index], places[real]
    return Edges(places // width * num_tokens + num_prefix + places % width, index)


def _table(size: int, width: int, zero_padding: bool) -> nn.Embedding:
    table = nn.Embedding(size, width, padding_idx=0)  # the row of padding gets no gradient
    nn.init.normal_(table.weight, std=0.02)
    if zero_padding:
        with torch.no_grad():
            table.weight[0] = 0
    return table
