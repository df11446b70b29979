"""Convolution along the edges of a graph, in parallel with an attention or without one."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor, nn

from sliceformer_lab.attention.base import Attention, LayerSpec
from sliceformer_lab.attention.identity import Identity
from sliceformer_lab.attention.stateful import LayerState
from sliceformer_lab.batch import Edges, Padding
from sliceformer_lab.config.option_types import Positive
from sliceformer_lab.encoder.base import EncoderBlock
from sliceformer_lab.encoder.encoder_options import EncoderOptions
from sliceformer_lab.encoder.layers import DropPath, Mlp
from sliceformer_lab.encoder.norm import NormKind, build_norm, normalise

Convolution = Literal["gcn", "gine", "gatedgcn"]


class GPSBlock(EncoderBlock):
    """A graph convolution in parallel with an attention, then an MLP. (B, N, C) -> (B, N, C).

    Each branch is added to the tokens and normalised; the sum of both goes through an MLP with a skip connection and a
    norm (GraphGPS, Rampasek et al. 2022, equations 5 to 8). The convolution applies to the nodes; other tokens (a graph
    token, edges) have the attention only. With `global_attention=false` a layer is x + relu(norm(conv(x))) on the
    nodes, without MLP, as in the baselines of the Long Range Graph Benchmark. Unlike in the published GatedGCN, the
    edge features do not change from layer to layer.
    Raises ValueError for `global_attention=false` with another attention than `identity`.
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
        self.global_attention = global_attention
        self.attention = attention
        self.conv = _build_conv(conv, spec.dim)
        self.reads_edge_features = conv != "gcn"
        self.norm_local = build_norm(norm, spec.dim, norm_eps)
        self.dropout = nn.Dropout(encoder.dropout)
        self.drop_path = DropPath(encoder.drop_path_at(spec.index))
        if global_attention:
            self.norm_global = build_norm(norm, spec.dim, norm_eps)
            self.mlp = Mlp(spec.dim, encoder.mlp_dim, act_layer=nn.ReLU, drop=encoder.dropout)
            self.norm_out = build_norm(norm, spec.dim, norm_eps)

    def attention_input(self, x: Tensor, padding: Padding | None = None) -> Tensor:
        """The block's input, unchanged. (B, N, C) -> (B, N, C)."""
        del padding
        return x

    def forward(
        self,
        x: Tensor,
        padding: Padding | None = None,
        bias: Tensor | None = None,
        edges: Edges | None = None,
        state: LayerState | None = None,
    ) -> Tensor:
        """(B, N, C) -> (B, N, C); bias (B, H, N, N) and the state go to the attention.

        Raises ValueError without edges.
        """
        if edges is None:
            raise ValueError("GPSBlock convolves along edges, but the batch has none")
        nodes = x.flatten(0, 1)[edges.nodes]  # (V, C), no padding among them
        if not self.global_attention:
            changed = self.norm_local(self._convolved(nodes, edges)[None])[0].relu()
            return x + self.drop_path(self._at_nodes(x, edges, self.dropout(changed)))
        local = self.norm_local((nodes + self.dropout(self._convolved(nodes, edges)))[None])[0]
        mixed = x + self.drop_path(self.dropout(self.attend(x, padding, bias, state)))
        y = normalise(self.norm_global, mixed, padding) + self._at_nodes(x, edges, local)
        return normalise(self.norm_out, y + self.drop_path(self.mlp(y)), padding)

    def _convolved(self, nodes: Tensor, edges: Edges) -> Tensor:
        """(V, C) -> (V, C)."""
        features = {}
        if self.reads_edge_features:
            if edges.features is None:
                raise ValueError("this convolution reads edge features, but the batch has none")
            features["edge_attr"] = edges.features
        return self.conv(nodes, edges.index, **features)

    def _at_nodes(self, x: Tensor, edges: Edges, values: Tensor) -> Tensor:
        """Values (V, C) at the nodes among the tokens (B, N, C), 0 elsewhere."""
        flat = torch.zeros_like(x, dtype=values.dtype).flatten(0, 1)
        return flat.index_copy(0, edges.nodes, values).view_as(x)


def _build_conv(kind: Convolution, dim: int) -> nn.Module:
    """The convolution of the `conv` option. Raises ValueError if torch-geometric is not installed."""
    try:
        from torch_geometric import nn as graph_nn  # seconds to import
    except ImportError as error:
        raise ValueError("block=gps needs torch-geometric: pip install 'sliceformer-lab[graph]'") from error
    built: nn.Module
    match kind:
        case "gcn":
            built = graph_nn.GCNConv(dim, dim)
        case "gine":
            built = graph_nn.GINEConv(nn.Sequential(nn.Linear(dim, dim), nn.ReLU(), nn.Linear(dim, dim)))
        case "gatedgcn":
            built = graph_nn.ResGatedGraphConv(dim, dim, edge_dim=dim)
    return built
