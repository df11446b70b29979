"""Graphormer: tokens of nodes by features and degree, and a bias for pairs of nodes by distance and path."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sliceformer_lab.batch import Graphs, Padding
from sliceformer_lab.encoder.hidden import Hidden
from sliceformer_lab.encoder.layers import without_decay

NUM_IDS = 512  # ids for each feature, distance and degree; 0 is padding
MAX_HOPS = 128  # edges of a path that have a matrix of their own


class GraphEmbedding(nn.Module):
    """One token per node and a learned graph token in front. Features (B, N, F) -> (B, 1 + N, dim).

    A node is the sum of one vector for each feature and two for its degree. Both degree tables are indexed by the
    number of outgoing edges, as in the published code; molecules have as many incoming edges. Padding is 0, or, with
    `zero_padding=False`, random and frozen as after the published initialisation.
    Source: Graphormer (Ying et al. 2021), equation (5).
    """

    def __init__(self, num_features: int, dim: int, *, zero_padding: bool = True) -> None:
        super().__init__()
        self.features = _build_table(NUM_IDS * num_features + 1, dim, zero_padding)
        self.in_degree = _build_table(NUM_IDS, dim, zero_padding)
        self.out_degree = _build_table(NUM_IDS, dim, zero_padding)
        self.graph_token = without_decay(nn.Parameter(torch.randn(1, 1, dim) * 0.02))

    def forward(
        self, nodes: Tensor, graphs: Graphs, padding: Padding | None = None, hidden: Hidden | None = None
    ) -> Tensor:
        ids = nodes + 2 + NUM_IDS * torch.arange(nodes.shape[2], device=nodes.device)
        source = graphs.edge_index[0]
        edges = source.new_zeros(nodes[..., 0].numel())
        edges = edges.index_add(0, source, torch.ones_like(source))  # bincount would wait for a GPU
        degrees = edges.view(nodes.shape[:2]) + 1
        if padding is not None:
            ids, degrees = ids.masked_fill(~padding.mask[..., None], 0), degrees.masked_fill(~padding.mask, 0)
        x = self.features(ids).sum(dim=2) + self.in_degree(degrees) + self.out_degree(degrees)
        if hidden is not None:
            x = hidden.cover(x)
        return torch.cat([self.graph_token.expand(len(x), -1, -1), x], dim=1)


class GraphBias(nn.Module):
    """The bias of every head for pairs of tokens: distance, edges on the path, graph token. -> (B, H, 1+N, 1+N).

    Each edge among the first hops of the shortest path contributes the mean of its features' vectors (H), times the
    matrix of the hop; the sum is divided by the number of hops. The row and the column of the graph token hold one
    number per head. `zero_padding=False` leaves the padding rows of the tables random and frozen, so missing hops
    count.
    Source: Graphormer (Ying et al. 2021), equations (6) and (7); the matrix per hop is from the published code.
    """

    def __init__(self, num_heads: int, num_edge_features: int, *, zero_padding: bool = True) -> None:
        super().__init__()
        self.distance = _build_table(NUM_IDS, num_heads, zero_padding)
        self.edge = _build_table(NUM_IDS * num_edge_features + 1, num_heads, zero_padding)
        self.hop = without_decay(nn.Parameter(torch.randn(MAX_HOPS, num_heads, num_heads) * 0.02))
        self.virtual = without_decay(nn.Parameter(torch.randn(num_heads) * 0.02))

    def forward(self, graphs: Graphs, padding: Padding | None = None) -> Tensor:
        """Raises ValueError if the graphs have no distances."""
        if graphs.distances is None:
            raise ValueError("a graph bias needs the distances between nodes")
        distances = torch.where(graphs.distances < 0, NUM_IDS - 1, graphs.distances + 1)
        if padding is not None:
            real = padding.mask[:, :, None] & padding.mask[:, None, :]
            distances = distances.masked_fill(~real, 0)
        pairs = self.distance(distances)  # (B, N, N, H)
        if graphs.path_edges is not None:
            pairs = pairs + self._along_paths(graphs, graphs.path_edges, distances)
        size = pairs.shape[1] + 1
        bias: Tensor = pairs.new_zeros(len(pairs), pairs.shape[3], size, size)
        bias[:, :, 1:, 1:] = pairs.permute(0, 3, 1, 2)
        bias[:, :, 0, :] = self.virtual[:, None]
        bias[:, :, 1:, 0] = self.virtual[:, None]
        return bias

    def _along_paths(self, graphs: Graphs, path_edges: Tensor, distances: Tensor) -> Tensor:
        """Path edges (B, N, N, K) and distance ids (B, N, N) -> (B, N, N, H).

        Every edge is multiplied by the matrix of every hop once, however many paths it lies on.
        """
        hops, features = path_edges.shape[3], graphs.edge_features
        ids = features + 3 + NUM_IDS * torch.arange(features.shape[1], device=features.device)
        edges = self.edge(F.pad(ids, (0, 0, 1, 0))).mean(dim=1)  # (1 + E, H); the first one is beyond the end of a path
        edges = torch.cat([edges[:1], graphs.visible(edges[1:])])
        at_hop = torch.einsum("eh,khg->keg", edges, self.hop[:hops])
        summed = torch.stack([F.embedding(path_edges[..., k] + 1, at_hop[k]) for k in range(hops)]).sum(0)
        steps = (distances - 1).clamp(1, hops)  # ids start at 1, the node itself
        return summed / steps[..., None]


def _build_table(size: int, width: int, zero_padding: bool) -> nn.Embedding:
    table = nn.Embedding(size, width, padding_idx=0)  # the row of padding gets no gradient
    nn.init.normal_(table.weight, std=0.02)
    if zero_padding:
        with torch.no_grad():
            table.weight[0] = 0
    return table
