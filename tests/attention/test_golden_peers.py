"""Baselines against golden vectors, through YAML, public class and `forward`."""

from __future__ import annotations

import pytest
from support.golden_files import Peer, check_peer, file_names, load, peer_files, peer_layer, peer_options
from torch.testing import assert_close

from sliceformer_lab.attention.performer import Performer

PEERS = {
    "softmax": Peer(attention="mha"),
    "linear": Peer(attention="linear"),
    "cosformer": Peer(attention="cosformer", options={"M": "max_len"}, gradient_atol=5e-5),
    "performer": Peer(
        attention="performer",
        options={"kernel": "kernel", "features": "num_features"},
        weights={"proj": "directions"},
    ),
    "linformer": Peer(
        attention="linformer",
        options={"k": "num_slots", "share_kv": "share_kv", "max_len": "max_len"},
        weights={"proj_k": "key_slots", "proj_v": "value_slots"},
    ),
    "local": Peer(attention="local", options={"block": "block_size", "block_layout": "block_layout"}),
    "synthesizer": Peer(
        attention="synthesizer",
        options={"mode": "mode", "mix_dot_product": "mix_dot_product"},
        sizes={"R1": ("rank", 2), "syn_w1": ("rank", 1)},
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
    "sinkhorn": Peer(attention="sinkformer", options={"n_it": "n_it"}),
}


def test_every_operation_has_a_file() -> None:
    assert len(peer_files(PEERS)) >= len(PEERS)


@pytest.mark.parametrize("surprise", [{"temperature": 1}, {"block_layout": "strided_lra"}], ids=str)
def test_an_unknown_option_fails(surprise: dict[str, object]) -> None:
    with pytest.raises(AssertionError):
        peer_options({"op": "softmax", "heads": 4, **surprise}, PEERS["softmax"])


@pytest.mark.parametrize("name", peer_files(PEERS))
def test_equals_golden_vectors(name: str) -> None:
    check_peer(name, PEERS[load(name)[0]["op"]])


@pytest.mark.parametrize("name", file_names("peer__sinkhorn_"))
def test_weights_equal_the_golden_plan(name: str) -> None:
    golden, arrays = load(name)
    layer = peer_layer(golden, arrays, PEERS["sinkhorn"])
    assert_close(layer.implied_map(arrays["x"]), arrays["plan"], rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", file_names("peer__performer_"))
def test_features_equal_golden_ones(name: str) -> None:
    golden, arrays = load(name)
    layer = peer_layer(golden, arrays, PEERS["performer"])
    assert isinstance(layer, Performer)
    _, q, k = layer.project(arrays["x"])
    phi_q, phi_k = layer.features(layer.split_heads(q), layer.split_heads(k), None)
    assert_close(phi_q, arrays["phi_q"], rtol=0, atol=1e-5)
    assert_close(phi_k, arrays["phi_k"], rtol=0, atol=1e-5)
