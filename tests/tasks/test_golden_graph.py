"""Graphormer's bias and forward pass against the golden files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from support.golden_files import (
    KINDS,
    PROJECTIONS,
    Arrays,
    file_names,
    load,
    numbered,
    operations,
)
from torch import Tensor, nn
from torch.testing import assert_close

from sliceformer_lab.batch import Batch
from sliceformer_lab.config.compose import load_option
from sliceformer_lab.data.graphs.shortest_paths import shortest_paths
from sliceformer_lab.data.graphs.store import NO_GRAPHS, Graph, GraphSplit
from sliceformer_lab.encoder.factory import Encoder, build_encoder
from sliceformer_lab.encoder.graphormer import GraphBias, GraphEmbedding
from sliceformer_lab.encoder.pool import Pool

BLOCKS = {"order": "interleave", "interleave_rule": "block", "interleave_scope": "head", "layer_order": "low_first"}
MODELS = {  # operation -> attention and its options
    "mha": ("mha", {}),
    "mix_plus_sort": ("sliceformer", {}),
    "mix_plus_sort_interleave": ("sliceformer", BLOCKS),
    "sort_of_mix": ("sliceformer", {"bias_formula": "sort_of_mix"}),
    "sort_of_mix_aligned": ("sliceformer", {"bias_formula": "sort_of_mix", "reference": "channel0"}),
}
FILES = file_names("graphormer", *MODELS)
COMPARED = {"g", "mask", "bias", "hidden", "pred", "cls_index"}


@dataclass
class Model:
    """Our parts of a golden model, and its weights under their golden names."""

    embedding: GraphEmbedding
    bias: GraphBias
    encoder: Encoder
    head: nn.Linear
    weights: dict[str, nn.Parameter]


def preprocessed(name: str, mask: Tensor) -> Arrays:
    """The arrays of the preprocess file that a model reads: the one of that name, or any with its numbers of nodes."""
    for file in sorted(file_names("graphormer", "preprocess"), key=lambda file: file != name):
        _, arrays = load(file)
        if torch.equal(arrays["num_nodes"] + 1, mask.sum(1)):
            return arrays
    raise FileNotFoundError(f"no file of the operation preprocess holds the graphs of {name}")


def batch_of(options: dict[str, Any], arrays: Arrays) -> tuple[Batch, Tensor]:
    """The graphs of a model, collated by our own split, and its file's -inf for pairs of nodes (B, 1, 1+N, 1+N)."""
    collated = preprocessed(options["batch"].split()[0], arrays["mask"])
    graphs = []
    for golden in numbered(collated, "g"):
        edges = golden["edge_index"].numpy()
        pairs = np.stack(shortest_paths(edges, len(golden["x"])), axis=-1)
        graphs.append(Graph(golden["x"].numpy(), edges, golden["edge_attr"].numpy(), pairs))
    split = GraphSplit(NO_GRAPHS, rows=np.arange(0), num_hops=collated["batch_edge_input"].shape[3])
    return split.collate(graphs), collated["batch_attn_bias"][:, None]


def model(options: dict[str, Any], arrays: Arrays) -> Model:
    """Our model with the weights of a golden file. A bias that the file does not have is zero."""
    attention, given = MODELS[options["op"]]
    if attention == "sliceformer" and options["sort_mask_mode"] != "inf":
        attention = "sliceformer_published_padding"
    dim, depth, heads = options["hidden"], options["num_layers"], options["heads"]
    sizes = {"dim": dim, "depth": depth, "num_heads": heads, "mlp_dim": options["ffn"], "position": "none"}
    encoder = build_encoder(
        load_option("encoder", "tiny") | sizes,
        load_option("block", "transformer") | {"norm_eps": options["norm_eps"]},
        load_option("attention", attention) | given,
        max_len=arrays["mask"].shape[1],
        num_prefix=1,
    )
    embedding = GraphEmbedding(9, dim, zero_padding=options["pad_row_zero"])
    bias = GraphBias(heads, 3, zero_padding=options["pad_row_zero"])
    head = nn.Linear(dim, 1)
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
    state = encoder.state_dict(keep_vars=True)
    for kind, part in KINDS.items():
        for layer in range(depth):
            block = f"blocks.{layer}"
            for theirs, ours in PROJECTIONS.items():
                names[f"l{layer}_{kind}_{theirs}"] = state.get(f"{block}.attention.{ours}.{part}")
            for i in (1, 2):
                names[f"l{layer}_ln{i}_{kind}"] = state[f"{block}.norm{i}.{part}"]
                names[f"l{layer}_{kind}_{i}"] = state[f"{block}.mlp.fc{i}.{part}"]
        names[f"final_ln_{kind}"] = state[f"norm.{part}"]
    weights = {key: parameter for key, parameter in names.items() if parameter is not None}
    unknown = {key for key in arrays if not key.startswith("grad__")} - COMPARED - set(weights)
    assert not unknown, f"no parameter for {unknown}"
    with torch.no_grad():
        for key, parameter in weights.items():
            if key in arrays or "_b" not in key:
                parameter.copy_(arrays[key].reshape(parameter.shape))
            else:
                parameter.zero_()
    return Model(embedding, bias, encoder.eval(), head, weights)


def test_every_operation_has_a_committed_file() -> None:
    without_file = {"mix_plus_sort_interleave"}
    assert operations("graphormer") == {"preprocess", *MODELS} - without_file


@pytest.mark.parametrize("name", FILES)
def test_bias_is_the_published_one(name: str) -> None:
    options, arrays = load(name)
    batch, limits = batch_of(options, arrays)
    found = model(options, arrays).bias(batch.structure, batch.padding) + 2 * limits
    keys = arrays["mask"][:, None, None, :].expand(found.shape)
    assert_close(found[keys], arrays["bias"][keys], atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("name", FILES)
def test_forward_and_gradients_are_the_published_ones(name: str) -> None:
    options, arrays = load(name)
    batch, limits = batch_of(options, arrays)
    ours, graphs = model(options, arrays), batch.structure
    assert graphs is not None
    padding = None if batch.padding is None else batch.padding.after_prefix(1)
    x, pairs = ours.embedding(batch.inputs, graphs, batch.padding), ours.bias(graphs, batch.padding) + 2 * limits
    if "cls_index" in arrays:
        tokens, reference = ours.encoder.with_reference(x, padding, pairs)
        seen = padding if options["sort_mask_mode"] == "inf" else None  # the published code looks at all rows
        pooled = Pool("ref_max", ours.encoder.options)(tokens, seen, reference=reference)
    else:
        tokens = ours.encoder(x, padding, pairs)
        pooled = tokens[:, 0]
    assert_close(tokens[arrays["mask"]], arrays["hidden"][arrays["mask"]], atol=2e-5, rtol=1e-4)
    predicted = ours.head(pooled)
    assert_close(predicted, arrays["pred"], atol=2e-5, rtol=1e-4)
    (predicted * arrays["g"]).sum().backward()
    for key, parameter in ours.weights.items():
        if f"grad__{key}" in arrays:
            expected = arrays[f"grad__{key}"].reshape(parameter.shape)
            unused = parameter.grad is None  # the edges of a batch without any
            found = torch.zeros_like(parameter) if unused else parameter.grad
            assert_close(found, expected, atol=5e-5, rtol=1e-3, msg=lambda text, key=key: f"{key}: {text}")
