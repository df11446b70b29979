"""Baselines against golden vectors, through YAML, public class and `forward`."""

from __future__ import annotations

import pytest
from golden_files import Peer, check_peer, load, peer_files, peer_options

PEERS = {
    "softmax": Peer(attention="mha"),
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
