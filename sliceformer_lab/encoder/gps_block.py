"""Convolution along the edges of a graph, in parallel with an attention or without one."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sliceformer_lab.attention.base import ALONE, Attention, BlockInputs, LayerSpec, LayerState
from sliceformer_lab.attention.dropout import Dropout
from sliceformer_lab.attention.identity import Identity
from sliceformer_lab.batch import Edges
from sliceformer_lab.config.option_types import Positive
from sliceformer_lab.encoder.base import EncoderBlock
from sliceformer_lab.encoder.encoder_options import EncoderOptions
from sliceformer_lab.encoder.gated_gcn import GatedGCN
from sliceformer_lab.encoder.layers import DropPath, Mlp
from sliceformer_lab.encoder.norm import NormKind, build_norm, normalise

Convolution = Literal["gcn", "gine", "gatedgcn", "resgated"]


class GPSBlock(EncoderBlock):
    """A graph convolution in parallel with an attention, then an MLP. (B, N, C) -> (B, N, C).

    Each branch is added to the tokens and normalised; the sum of both goes through an MLP with a skip connection and a
    norm (GraphGPS, Rampasek et al. 2022, equations 5 to 8). The convolution applies to the nodes; other tokens (a graph
    token, edges) have the attention only. `gatedgcn` changes the features of the edges too, for the next layer.
    With `global_attention=false` a layer is x + relu(norm(conv(x))) on the nodes, without MLP, as in the baselines of
    the Long Range Graph Benchmark. With `stage=stack` it is relu(norm(conv(x))) without skip connection, scaled to
    length 1 per node, as that benchmark's GCN is: a plain stack of PyG's GraphGym.
    Raises ValueError for `global_attention=false` with another attention than `identity`, and for `stage=stack` with an
    attention, with `gatedgcn`, or with stochastic depth, which needs a skip connection.
    """

    needs_edges = True

    def __init__(
        self,
        spec: LayerSpec,
        attention: Attention,
        encoder: EncoderOptions,
        first: EncoderBlock | None = None,
        *,
        conv: Convolution = "gatedgcn",
        global_attention: bool = True,
        stage: Literal["skip", "stack"] = "skip",
        norm: NormKind = "batchnorm",
        norm_eps: Positive = 1e-5,
    ) -> None:
        del first
        super().__init__()
        if not global_attention:
            if not isinstance(attention, Identity):
                raise ValueError(
                    f"global_attention=false has no place for {type(attention).__name__}; choose attention=identity"
                )
            attention = Identity(replace(spec, project=False))  # without parameters, as it is not called
        if stage == "stack" and (global_attention or conv == "gatedgcn" or encoder.drop_path):
            raise ValueError(
                "stage=stack has no skip connection; it needs global_attention=false, encoder.drop_path=0 and another "
                "conv than gatedgcn"
            )
        self.global_attention = global_attention
        self.has_skip = stage == "skip"
        self.attention = attention
        self.conv: nn.Module
        if conv == "gatedgcn":
            updates_edges = spec.index < spec.depth - 1
            self.conv = GatedGCN(
                spec.dim, norm=norm, norm_eps=norm_eps, dropout=encoder.dropout, updates_edges=updates_edges
            )
        else:
            self.conv = _build_conv(conv, spec.dim, bias=self.has_skip)
        self.reads_edge_features = conv != "gcn"
        if global_attention or conv != "gatedgcn":  # which has a norm of its own
            self.norm_local = build_norm(norm, spec.dim, norm_eps)
        self.dropout = Dropout(encoder.dropout)
        self.drop_path = DropPath(encoder.drop_path_at(spec.index))
        if global_attention:
            self.norm_global = build_norm(norm, spec.dim, norm_eps)
            self.mlp = Mlp(spec.dim, encoder.mlp_dim, act_layer=nn.ReLU, drop=encoder.dropout)
            self.norm_out = build_norm(norm, spec.dim, norm_eps)

    @property
    def passes_state(self) -> bool:
        """Whether the attention does, or the convolution changes edges for the next block."""
        return super().passes_state or isinstance(self.conv, GatedGCN)

    def forward(self, x: Tensor, given: BlockInputs = ALONE) -> Tensor:
        """(B, N, C) -> (B, N, C); edges that the convolution changes are left in the state.

        Raises ValueError without edges.
        """
        if given.edges is None:
            raise ValueError("GPSBlock convolves along edges, but the batch has none")
        edges, state = given.edges, given.state or LayerState()
        nodes = x.flatten(0, 1)[edges.nodes]  # (V, C), no padding among them
        changed = self._convolve(nodes, edges, state)
        gated = isinstance(self.conv, GatedGCN)  # with norm, ReLU and dropout
        if not self.global_attention:
            if not gated:
                changed = self.dropout(self.norm_local(changed[None])[0].relu())
            if self.has_skip:
                return x + self.drop_path(self._at_nodes(torch.zeros_like(x), edges, changed))
            return self._at_nodes(x, edges, F.normalize(changed, dim=-1))
        summed = nodes + (changed if gated else self.dropout(changed))
        local = self._at_nodes(torch.zeros_like(x), edges, self.norm_local(summed[None])[0])
        mixed = x + self.drop_path(self.dropout(self.attention.attend_in_block(x, given)))
        y = normalise(self.norm_global, mixed, given.padding) + local
        return normalise(self.norm_out, y + self.drop_path(self.mlp(y)), given.padding)

    def _convolve(self, nodes: Tensor, edges: Edges, state: LayerState) -> Tensor:
        """(V, C) -> (V, C); a convolution that changes the edges leaves them in `state`."""
        if not self.reads_edge_features:
            convolved: Tensor = self.conv(nodes, edges.index)
            return convolved
        features = edges.features if state.edge_features is None else state.edge_features
        if features is None:
            raise ValueError("this convolution reads edge features, but the batch has none")
        if not isinstance(self.conv, GatedGCN):
            return self.conv(nodes, edges.index, edge_attr=features)
        changed, gained = self.conv(nodes, edges.index, features)
        state.edge_features = features if gained is None else features + gained
        return changed

    def _at_nodes(self, x: Tensor, edges: Edges, values: Tensor) -> Tensor:
        """The tokens (B, N, C) with the values (V, C) at the nodes."""
        return x.to(values.dtype).flatten(0, 1).index_copy(0, edges.nodes, values).view_as(x)


def _build_conv(kind: Convolution, dim: int, *, bias: bool) -> nn.Module:
    """The convolution of the `conv` option."""
    from torch_geometric import nn as graph_nn  # seconds to import

    built: nn.Module
    match kind:
        case "gcn":
            built = graph_nn.GCNConv(dim, dim, bias=bias)
        case "gine":
            built = graph_nn.GINEConv(nn.Sequential(nn.Linear(dim, dim), nn.ReLU(), nn.Linear(dim, dim)))
        case _:
            built = graph_nn.ResGatedGraphConv(dim, dim, edge_dim=dim)
    return built
