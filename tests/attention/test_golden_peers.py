"""Baselines against golden vectors, through YAML, public class and `forward`."""

from __future__ import annotations

from typing import cast

import pytest
import torch
from support.golden_files import KINDS, Peer, cases, check_peer, file_names, load, operations, peer_layer
from torch import Tensor
from torch.testing import assert_close

from sliceformer_lab.attention.base import LayerState
from sliceformer_lab.attention.luna import Luna
from sliceformer_lab.attention.performer import Performer

GLOBAL = {"gq": "global_query", "gk": "global_key", "gv": "global_value"}
NESTED = {"k": "unpack_key", "v": "unpack_value", "pq": "pack_query", "pk": "key", "pv": "value"}


def linear_weights(names: dict[str, str]) -> dict[str, str]:
    """`w_gq` -> global_query.weight, `b_gq` -> global_query.bias, and so on."""
    return {f"{k}_{theirs}": f"{ours}.{kind}" for k, kind in KINDS.items() for theirs, ours in names.items()}


def new_blocks(drawn: Tensor) -> Tensor:
    """Random blocks (H, K, R), with 0 for those that the row sees anyway: ends, neighbours and repeated ones."""
    row, last = torch.arange(drawn.shape[1])[:, None], drawn.shape[1] - 1
    repeated = (drawn[..., :, None] == drawn[..., None, :]).tril(-1).any(-1)
    return drawn.masked_fill(repeated | (drawn == last) | ((drawn - row).abs() <= 1), 0)


PEERS = {
    "softmax": Peer(attention="mha", gradient_atol=5e-5),  # large scores
    "linear": Peer(attention="linear"),
    "cosformer": Peer(attention="cosformer", options={"M": "max_len"}, gradient_atol=5e-5),
    "performer": Peer(attention="performer", options={"features": "num_features"}, weights={"proj": "directions"}),
    "linformer": Peer(
        attention="linformer", options={"k": "num_slots"}, weights={"proj_k": "key_slots", "proj_v": "value_slots"}
    ),
    "local": Peer(attention="local", options={"block": "block_size"}),
    "synthesizer": Peer(
        attention="synthesizer",
        sizes={
            "R": ("max_len", 2),
            "R1": ("rank", 2),
            "R2": ("max_len", 2),
            "syn_w1": ("rank", 1),
            "syn_w2": ("max_len", 1),
        },
        weights={
            "R": "scores",
            "R1": "left",
            "R2": "right",
            "syn_w1": "hidden.weight",
            "syn_b1": "hidden.bias",
            "syn_w2": "position_keys",
            "syn_b2": "position_bias",
        },
    ),
    "sinkhorn": Peer(attention="sinkformer"),
    "longformer": Peer(
        attention="longformer",
        options={"global_tokens": "num_global"},
        values={str(list(range(count))): count for count in range(10)},  # only the first tokens can be global
        weights=linear_weights(GLOBAL),
    ),
    "bigbird": Peer(
        attention="bigbird",
        options={"block": "block_size", "random_blocks_per_row": "num_random"},
        layouts={"random_blocks": new_blocks},
    ),
    "sparse_fixed": Peer(attention="sparse", options={"block": "block_size", "c": "num_summary"}),
    "reformer": Peer(
        attention="reformer",
        options={"n_hashes": "num_hashes", "n_buckets": "num_buckets"},
        weights={"w_qk": "query.weight", "b_qk": "query.bias"},
    ),
    "luna": Peer(
        attention="luna",
        options={"l": "memory_size"},
        fixed={"dynamic": True},
        weights={"p": "memory"} | linear_weights(NESTED),
    ),
}


def test_every_operation_has_a_committed_file() -> None:
    assert operations("peers") == set(PEERS)


@pytest.mark.parametrize("name", file_names("peers"))
def test_equals_golden_vectors(name: str) -> None:
    check_peer(name, PEERS, load(name)[0]["op"])


@pytest.mark.parametrize("name", file_names("peers", "sinkhorn"))
def test_weights_equal_the_golden_plan(name: str) -> None:
    golden, arrays = load(name)
    layer = peer_layer(golden, arrays, PEERS["sinkhorn"])
    assert_close(layer.implied_map(arrays["x"]), arrays["plan"], rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", file_names("peers", "performer"))
def test_features_equal_golden_ones(name: str) -> None:
    golden, arrays = load(name)
    layer = cast(Performer, peer_layer(golden, arrays, PEERS["performer"]))
    _, q, k = layer.project(arrays["x"])
    phi_q, phi_k = layer.features(layer.split_heads(q), layer.split_heads(k), None)
    assert_close(phi_q, arrays["phi_q"], rtol=0, atol=1e-5)
    assert_close(phi_k, arrays["phi_k"], rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", file_names("peers", "luna"))
def test_packing_equals_golden_memory(name: str) -> None:
    golden, arrays = load(name)
    layer = cast(Luna, peer_layer(golden, arrays, PEERS["luna"]))
    rows = arrays["pack"].shape[1]  # at most N; a sample unpacks no more rows than it has tokens
    for suffix, padding in cases(arrays):
        state = LayerState()
        layer(arrays["x"], padding, state=state)
        assert state.value is not None
        packed = state.value - layer.memory
        assert_close(packed[:, :rows], arrays[f"pack{suffix}"], rtol=0, atol=1e-5)
