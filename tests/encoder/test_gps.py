"""Convolutions along edges in parallel with an attention, against dense formulas on padded graphs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from support.plans import build_data, build_task
from torch import Tensor
from torch.testing import assert_close

from sliceformer_lab.attention.base import BlockInputs
from sliceformer_lab.batch import Edges, Graphs, Padding
from sliceformer_lab.config.compose import compose_root, load_option
from sliceformer_lab.config.schema import ConfigError
from sliceformer_lab.encoder.factory import Encoder, build_encoder
from sliceformer_lab.encoder.gps_block import GPSBlock
from sliceformer_lab.encoder.graph_tokens import edges_among_tokens

LENGTHS = torch.tensor([4, 2, 1])  # nodes; one token in front of them
LINKS = ((0, 0, 1), (0, 1, 2), (0, 2, 3), (1, 0, 1))  # graph and two nodes
WIDTH, DIM = 5, 16  # tokens: the one in front, at most four nodes


def encoder(attention: str = "mha", depth: int = 1, **block: Any) -> Encoder:
    torch.manual_seed(0)
    sizes = {"dim": DIM, "depth": depth, "num_heads": 2, "mlp_dim": 24, "position": "none"}
    nodes = load_option("encoder", "tiny") | sizes, load_option("block", "gps") | block
    return build_encoder(*nodes, load_option("attention", attention), WIDTH, num_prefix=1).eval()


def one_block(attention: str = "mha", depth: int = 1, **block: Any) -> Any:
    return encoder(attention, depth, **block).blocks[0]


def sample() -> tuple[Tensor, Padding, Edges, Tensor]:
    """Tokens (B, N, C), their padding, edges, and these dense: (B, N, N, C) features, NaN where there is no edge."""
    torch.manual_seed(1)
    pairs = [(g, a, b) for g, u, v in LINKS for a, b in ((u, v), (v, u))]
    index = torch.tensor([[g * 4 + a for g, a, _ in pairs], [g * 4 + b for g, _, b in pairs]])
    graphs = Graphs(index, torch.zeros(len(pairs), 1, dtype=torch.long))
    padding = Padding.from_lengths(LENGTHS, 4)
    edges = edges_among_tokens(graphs, (3, 4), padding, WIDTH, 1)
    features = torch.randn(len(pairs), DIM)
    dense = torch.full((3, WIDTH, WIDTH, DIM), torch.nan)
    for (g, a, b), feature in zip(pairs, features, strict=True):
        dense[g, a + 1, b + 1] = feature
    assert padding is not None
    tokens = padding.after_prefix(1)
    x = torch.randn(3, WIDTH, DIM).masked_fill(~tokens.mask[..., None], 0)
    return x, tokens, Edges(edges.nodes, edges.index, features), dense


def real_nodes(padding: Padding) -> Tensor:
    mask = padding.mask.clone()
    mask[:, 0] = False
    return mask


def convolved(conv: str, layer: Any, x: Tensor, dense: Tensor, nodes: Tensor) -> Tensor:
    """The convolution of the nodes of each graph alone. (B, N, C)."""
    found = torch.zeros_like(x)
    for graph, own in enumerate(nodes):
        source, target = (~dense[graph].isnan().any(-1)).nonzero().T
        features = () if conv == "gcn" else (dense[graph, source, target],)
        place = own.cumsum(0) - 1  # of a token among the nodes
        found[graph, own] = layer(x[graph, own], torch.stack([place[source], place[target]]), *features)
    return found


def gated(layer: Any, x: Tensor, dense: Tensor) -> tuple[Tensor, Tensor]:
    """The gated convolution edge by edge: changes of nodes (B, N, C) and of edges (B, source, target, C)."""
    nodes, edges = layer.own(x), torch.full_like(dense, torch.nan)
    for graph in range(3):
        for target in range(WIDTH):
            gates, messages = torch.zeros(DIM), torch.zeros(DIM)
            for source in range(WIDTH):
                feature = dense[graph, source, target]
                if feature.isnan().any():
                    continue
                edge = layer.target(x[graph, target]) + layer.source(x[graph, source]) + layer.edge(feature)
                edges[graph, source, target] = edge
                gates += edge.sigmoid()
                messages += edge.sigmoid() * layer.neighbour(x[graph, source])
            nodes[graph, target] += messages / (gates + 1e-6)
    edges = edges if layer.norm_edges is None else layer.norm_edges(edges).relu()
    return layer.norm_nodes(nodes).relu(), edges


@torch.no_grad()
def test_gated_convolution_passes_changed_edges_to_the_next_layer() -> None:
    model = encoder("identity", depth=2, conv="gatedgcn", global_attention=False, norm="layernorm")
    first, second = (block.conv for block in model.blocks)
    assert first.norm_edges is not None and second.norm_edges is None  # nothing reads the edges after the last layer
    x, padding, edges, dense = sample()
    nodes = real_nodes(padding)[..., None]
    gained, gained_edges = gated(first, x, dense)
    x1, dense1 = x + gained * nodes, dense + gained_edges
    expected = x1 + gated(second, x1, dense1)[0] * nodes
    assert_close(model(x, padding, None, edges), expected, atol=1e-5, rtol=1e-4)
    assert_close(model(x, padding, None, edges), expected, atol=1e-5, rtol=1e-4)  # a pass leaves nothing behind


def test_graphs_without_edges_leave_the_statistics_of_edges_as_they_are() -> None:
    model = encoder("identity", depth=2, conv="gatedgcn", global_attention=False).train()
    x, padding, edges, _ = sample()
    alone = Edges(edges.nodes, edges.index[:, :0], edges.features[:0] if edges.features is not None else None)
    assert model(x, padding, None, alone).isfinite().all()
    assert all(buffer.isfinite().all() for buffer in model.buffers())


def test_a_stack_has_no_skip_connection_and_rows_of_length_one() -> None:
    block = one_block("identity", conv="gcn", global_attention=False, stage="stack", norm="layernorm")
    torch.nn.init.normal_(block.norm_local.weight)
    assert block.conv.bias is None
    x, padding, edges, dense = sample()
    nodes = real_nodes(padding)
    changed = block.norm_local(convolved("gcn", block.conv, x, dense, nodes)).relu()
    expected = torch.where(nodes[..., None], changed / changed.norm(dim=-1, keepdim=True), x)
    assert_close(block(x, BlockInputs(padding, edges=edges)), expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("fault", [{"global_attention": True}, {"conv": "gatedgcn"}])
def test_a_stack_with_something_that_needs_a_skip_connection_is_refused(fault: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="stage=stack has no skip connection"):
        one_block("identity", **({"stage": "stack", "conv": "gcn", "global_attention": False} | fault))


@pytest.mark.parametrize("conv", ["gcn", "gine", "resgated"])
def test_convolution_is_that_of_each_graph_alone(conv: str) -> None:
    block = one_block("identity", conv=conv, global_attention=False, norm="layernorm")
    x, padding, edges, dense = sample()
    nodes = real_nodes(padding)
    expected = x + block.norm_local(convolved(conv, block.conv, x, dense, nodes)).relu() * nodes[..., None]
    assert_close(block(x, BlockInputs(padding, edges=edges)), expected, atol=1e-5, rtol=1e-4)


@torch.no_grad()
@pytest.mark.parametrize(("conv", "norm"), [("gcn", "layernorm"), ("gcn", "batchnorm"), ("gatedgcn", "layernorm")])
def test_both_branches_are_added_and_go_through_the_mlp(conv: str, norm: str) -> None:
    block = one_block("mha", conv=conv, norm=norm)
    for part in (block.norm_local, block.norm_global, block.norm_out):
        torch.nn.init.normal_(part.weight)
    x, padding, edges, dense = sample()
    nodes = real_nodes(padding)
    if conv == "gatedgcn":
        changed, _ = gated(block.conv, x, dense)
    else:
        changed = convolved(conv, block.conv, x, dense, nodes)
    local = block.norm_local(x + changed) * nodes[..., None]
    y = local + block.norm_global(x + block.attention(x, padding))
    expected = block.norm_out(y + block.mlp(y))
    real = padding.mask
    assert_close(block(x, BlockInputs(padding, edges=edges))[real], expected[real], atol=1e-5, rtol=1e-4)


def test_batch_statistics_are_of_real_nodes() -> None:
    block = one_block("identity", conv="gcn", global_attention=False).train()
    x, padding, edges, dense = sample()
    block(x, BlockInputs(padding, edges=edges))
    nodes = real_nodes(padding)
    mean = convolved("gcn", block.conv, x, dense, nodes)[nodes].mean(0)
    assert_close(block.norm_local.running_mean, 0.1 * mean, atol=1e-5, rtol=1e-4)


def test_without_global_attention_other_attentions_are_refused() -> None:
    with pytest.raises(ConfigError, match="no place for CSP; choose attention=identity"):
        one_block("csp", global_attention=False)


def test_a_batch_without_edges_is_refused() -> None:
    x, padding, edges, _ = sample()
    with pytest.raises(ValueError, match="convolves along edges, but the batch has none"):
        one_block()(x, BlockInputs(padding))
    with pytest.raises(ValueError, match="reads edge features"):
        one_block()(x, BlockInputs(padding, edges=Edges(edges.nodes, edges.index)))


def test_data_without_graphs_are_refused() -> None:
    config = compose_root(["task=digits", "block=gps"])
    with pytest.raises(ConfigError, match="GPSBlock convolves along edges, but digits has no graphs"):
        build_task(config, build_data(config).spec)


def test_molecules_take_the_block_too_and_every_parameter_learns() -> None:
    config = compose_root(["task=qm9_gap", "encoder=tiny", "block=gps", "attention=csp"])
    spec = build_data(config).spec
    for conv in ("gcn", "gine", "gatedgcn", "resgated"):
        task = build_task({**config, "block": {**config["block"], "conv": conv}}, spec)
        task.loss(task(task.example()), torch.ones(1, 1)).backward()
        assert isinstance(task.encoder.blocks[0], GPSBlock)
        assert not [name for name, p in task.named_parameters() if p.grad is None], conv
