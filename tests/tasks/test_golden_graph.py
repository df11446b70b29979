"""Graphormer's bias and forward pass against the golden files."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from support import golden_files
from torch import Tensor, nn
from torch.testing import assert_close

from sliceformer_lab.batch import Graphs, Padding
from sliceformer_lab.config.compose import load_option
from sliceformer_lab.data.graphs.shortest_paths import shortest_paths
from sliceformer_lab.data.graphs.store import Graph, GraphSplit, GraphStore
from sliceformer_lab.encoder.factory import Encoder, build_encoder
from sliceformer_lab.encoder.graphormer import GraphBias, GraphEmbedding
from sliceformer_lab.encoder.pool import Pool

FILES = [name for name in golden_files.file_names("graph__") if name != "graph__preprocess"]
Arrays = dict[str, Tensor]


@pytest.fixture(scope="module")
def batch(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The golden graphs, collated by our own split."""
    golden = golden_files.load("graph__preprocess")[1]
    graphs = []
    for i in range(6):
        nodes, edges = golden[f"g{i}_x"].numpy(), golden[f"g{i}_edge_index"].numpy()
        pairs = np.stack(shortest_paths(edges, len(nodes)), axis=-1)
        features = golden[f"g{i}_edge_attr"].numpy().astype(np.uint8)
        graphs.append(Graph(nodes.astype(np.uint8), edges.astype(np.int16), features, pairs))
    folder = tmp_path_factory.mktemp("graphs")
    GraphStore.write(folder, graphs, np.zeros((6, 1), dtype=np.float32))
    return GraphSplit(GraphStore.open(folder), np.arange(6), num_hops=5).batch(list(range(6)))


def model(options: dict[str, Any], arrays: Arrays) -> tuple[GraphEmbedding, GraphBias, Encoder, nn.Linear]:
    aligned = options["op"].endswith("aligned")
    exact = options["sort_mask_mode"] == "inf"
    sort = "sliceformer" if exact else "sliceformer_published_padding"
    attention = load_option("attention", "mha" if options["op"] == "mha" else sort)
    if options["op"] != "mha":
        attention["bias_formula"] = options["op"].removesuffix("_aligned")
        attention["reference"] = "channel0" if aligned else "none"
    sizes = {"dim": 16, "depth": 2, "num_heads": 4, "mlp_dim": 16, "position": "none"}
    encoder = build_encoder(
        load_option("encoder", "tiny") | sizes,
        load_option("block", "transformer") | {"norm_eps": 1e-5},
        attention,
        64,
        num_prefix=1,
    )
    embedding = GraphEmbedding(9, 16, zero_padding=options["pad_row_zero"])
    bias = GraphBias(4, 3, zero_padding=options["pad_row_zero"])
    head = nn.Linear(16, 1)
    names = {
        "atom_emb": embedding.features.weight,
        "in_deg_emb": embedding.in_degree.weight,
        "out_deg_emb": embedding.out_degree.weight,
        "graph_token": embedding.graph_token,
        "edge_emb": bias.edge.weight,
        "spatial_emb": bias.distance.weight,
        "edge_hop": bias.hop,
        "virtual_dist": bias.virtual,
        "head_w": head.weight,
        "head_b": head.bias,
    }
    parts = {"w": "weight", "b": "bias"}
    state = encoder.state_dict(keep_vars=True)
    for layer in range(2):
        for ours, theirs in (("value", "v"), ("query", "q"), ("key", "k"), ("out", "o")):
            for kind, part in parts.items():
                key = f"blocks.{layer}.attention.{ours}.{part}"
                if key in state:
                    names[f"l{layer}_{kind}_{theirs}"] = state[key]
        for i in (1, 2):
            for kind, part in parts.items():
                names[f"l{layer}_ln{i}_{kind}"] = state[f"blocks.{layer}.norm{i}.{part}"]
                names[f"l{layer}_{kind}_{i}"] = state[f"blocks.{layer}.mlp.fc{i}.{part}"]
    names |= {f"final_ln_{kind}": state[f"norm.{part}"] for kind, part in parts.items()}
    missing = {key for key in arrays if key.split("_")[0] in ("l0", "l1", "final", "head", "atom")} - set(names)
    assert not missing, missing
    with torch.no_grad():
        for key, parameter in names.items():
            parameter.copy_(arrays[key].reshape(parameter.shape))
    embedding.golden_names = names  # type: ignore[assignment]
    return embedding, bias, encoder.eval(), head


@pytest.mark.parametrize("name", FILES)
def test_bias_is_the_published_one(name: str, batch: Any) -> None:
    options, arrays = golden_files.load(name)
    _, bias, _, _ = model(options, arrays)
    found = bias(batch.structure, batch.padding)
    keys = arrays["mask"][:, None, None, :].expand(found.shape)
    assert_close(found[keys], arrays["bias"][keys], atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("name", FILES)
def test_forward_and_gradients_are_the_published_ones(name: str, batch: Any) -> None:
    options, arrays = golden_files.load(name)
    embedding, bias, encoder, head = model(options, arrays)
    graphs: Graphs = batch.structure
    padding: Padding = batch.padding.after_prefix(1)
    x, pairs = embedding(batch.inputs, graphs, batch.padding), bias(graphs, batch.padding)
    if options["op"].endswith("aligned"):
        tokens, reference = encoder.with_reference(x, padding, pairs)
        pooled = Pool("ref_max", encoder.options)(tokens, reference=reference)  # of all rows, as published
    else:
        tokens = encoder(x, padding, pairs)
        pooled = tokens[:, 0]
    assert_close(tokens[arrays["mask"]], arrays["hidden"][arrays["mask"]], atol=2e-5, rtol=1e-4)
    predicted = head(pooled)
    assert_close(predicted, arrays["pred"], atol=2e-5, rtol=1e-4)
    (predicted * arrays["g"]).sum().backward()
    for key, parameter in embedding.golden_names.items():  # type: ignore[operator]
        if f"grad__{key}" in arrays:
            expected = arrays[f"grad__{key}"].reshape(parameter.shape)
            assert_close(parameter.grad, expected, atol=5e-5, rtol=1e-3, msg=lambda text, key=key: f"{key}: {text}")
