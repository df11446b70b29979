"""The gated graph convolution of GraphGPS, which changes the nodes and the edges."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from sliceformer_lab.attention.dropout import Dropout
from sliceformer_lab.encoder.norm import NormKind, build_norm

_EPS = 1e-6  # added to the sum of the gates of a node, which can have no edge


class GatedGCN(nn.Module):
    """What nodes gain from their neighbours, and edges from their ends. (V, C), (E, C) -> (V, C), (E, C).

    An edge from j to i has e = D x_i + E x_j + C f and the gate s = sigmoid(e). Node i gains relu(norm(A x_i + m)),
    where m is the mean of B x_j over its incoming edges with the gates as weights. An edge gains relu(norm(e)). The
    caller adds both to its nodes and edges. With `updates_edges=false` edges gain nothing, for a last layer, after
    which nothing reads them.
    Sources: Bresson & Laurent 2017 (Residual Gated Graph ConvNets) for the gates; Dwivedi et al. 2020 (Benchmarking
    Graph Neural Networks) for their sum and the edges; the code of GraphGPS (Rampasek et al. 2022) for the order of
    norm, ReLU and dropout.
    """

    def __init__(self, dim: int, *, norm: NormKind, norm_eps: float, dropout: float, updates_edges: bool) -> None:
        super().__init__()
        self.own = nn.Linear(dim, dim)  # A
        self.neighbour = nn.Linear(dim, dim)  # B
        self.edge = nn.Linear(dim, dim)  # C
        self.target = nn.Linear(dim, dim)  # D
        self.source = nn.Linear(dim, dim)  # E
        self.norm_nodes = build_norm(norm, dim, norm_eps)
        self.norm_edges = build_norm(norm, dim, norm_eps) if updates_edges else None
        self.dropout = Dropout(dropout)

    def forward(self, nodes: Tensor, index: Tensor, features: Tensor) -> tuple[Tensor, Tensor | None]:
        """Nodes (V, C), source and target of each edge (2, E), its features (E, C) -> (V, C), and (E, C) or None."""
        source, target = index
        edges = self.target(nodes)[target] + self.source(nodes)[source] + self.edge(features)  # (E, C)
        gates = edges.sigmoid()
        nothing = torch.zeros_like(nodes, dtype=gates.dtype)
        messages = nothing.index_add(0, target, gates * self.neighbour(nodes)[source])
        mean = messages / (nothing.index_add(0, target, gates) + _EPS)
        changed = self.dropout(self._apply_norm(self.norm_nodes, self.own(nodes) + mean).relu())
        if self.norm_edges is None or not len(edges):  # batch statistics of no edge are NaN
            return changed, None
        return changed, self.dropout(self._apply_norm(self.norm_edges, edges).relu())

    def _apply_norm(self, norm: nn.Module, x: Tensor) -> Tensor:
        normal: Tensor = norm(x[None])[0]
        return normal
