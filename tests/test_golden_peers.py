"""Baselines against golden vectors, through YAML, public class and `forward`."""

from __future__ import annotations

import pytest
from golden_files import Peer, check_peer, load, peer_files, peer_options

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
    "local": Peer(attention="local", options={"block": "block_size"}, fixed={"block_layout": "contiguous"}),
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
