"""Attentions over windows and blocks against golden vectors, through YAML, public class and `forward`."""

from __future__ import annotations

import pytest
from support.golden_files import Peer, check_peer, file_names

KINDS = {"w": "weight", "b": "bias"}
GLOBAL = {"gq": "global_query", "gk": "global_key", "gv": "global_value"}
WINDOW = {"back": "back", "ahead": "ahead"}
NESTED = {"k": "unpack_key", "v": "unpack_value", "pq": "pack_query", "pk": "key", "pv": "value"}
LUNA = {"p": "memory"} | {f"{k}_{g}": f"{name}.{kind}" for k, kind in KINDS.items() for g, name in NESTED.items()}
PEERS = {  # by the beginning of a file's name
    "peer__longformer_window": Peer(attention="longformer", options=WINDOW, fixed={"global_tokens": []}),
    "peer__longformer_cls": Peer(
        attention="longformer_cls",
        options=WINDOW,
        fixed={"global_tokens": [0]},
        weights={f"{k}_{g}": f"{name}.{kind}" for k, kind in KINDS.items() for g, name in GLOBAL.items()},
    ),
    "peer__bigbird": Peer(
        attention="bigbird",
        options={"block": "block_size", "random_blocks_per_row": "num_random"},
        weights={"random_blocks": "random_blocks"},
    ),
    "peer__sparse": Peer(
        attention="sparse",
        options={"block": "block_size", "c": "num_summary", "causal": "causal", "cls_open": "cls_open"},
    ),
    "peer__reformer": Peer(
        attention="reformer",
        options={
            "n_hashes": "num_hashes",
            "n_buckets": "num_buckets",
            "chunk_length": "chunk_length",
            "wrap": "wrap",
            "same_bucket_only": "same_bucket_only",
        },
        weights={"w_qk": "query.weight", "b_qk": "query.bias", "rotations": "rotations"},
    ),
    "peer__luna": Peer(
        attention="luna",
        options={"l": "memory_size"},
        fixed={"dynamic": True},
        weights=LUNA,
    ),
}
CASES = [(file, peer) for start, peer in PEERS.items() for file in file_names(start)]


def test_golden_files_are_there() -> None:
    assert {peer.attention for _, peer in CASES} == {peer.attention for peer in PEERS.values()}


@pytest.mark.parametrize(("name", "peer"), CASES, ids=lambda case: case if isinstance(case, str) else "")
def test_equals_golden_vectors(name: str, peer: Peer) -> None:
    check_peer(name, peer)
