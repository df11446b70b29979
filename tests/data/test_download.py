"""Downloads from bad servers: a whole official file, or one sentence."""

from __future__ import annotations

import hashlib
import socket
import time
from pathlib import Path

import numpy as np
import pytest
from support.bad_server import serving

from sliceformer_lab.data import download
from sliceformer_lab.data.download import OfficialFile, fetch
from sliceformer_lab.errors import DataError

CONTENT = np.random.default_rng(0).bytes(300_000)
SHA256 = hashlib.sha256(CONTENT).hexdigest()


def fetched(url: str, folder: Path, digest: str = SHA256, size: int = len(CONTENT)) -> bytes:
    return fetch(OfficialFile(url, digest, size), folder, download=True, check=True).read_bytes()


@pytest.mark.parametrize("digest", [SHA256, hashlib.md5(CONTENT).hexdigest(), ""])
def test_a_file_arrives_whole(digest: str, tmp_path: Path) -> None:
    with serving(CONTENT) as (url, _):
        assert fetched(url, tmp_path, digest) == CONTENT
    assert {file.name for file in tmp_path.iterdir()} == {"set.bin", ".preparing.lock"}


@pytest.mark.parametrize("how", ["well", "whole"])
def test_a_download_continues_what_an_earlier_start_kept(how: str, tmp_path: Path) -> None:
    (tmp_path / "set.bin.part").write_bytes(CONTENT[:100_000])
    with serving(CONTENT, how) as (url, asked):
        assert fetched(url, tmp_path) == CONTENT
    assert asked == ["bytes=100000-"]
    (other := tmp_path / "other").mkdir()
    (other / "set.bin.part").write_bytes(CONTENT + b"more")  # of another file
    with serving(CONTENT) as (url, asked):
        assert fetched(url, other) == CONTENT
    assert asked == [f"bytes={len(CONTENT) + 4}-", None]


def test_connections_that_end_early_are_continued_and_counted(tmp_path: Path) -> None:
    with serving(CONTENT, "cut") as (url, asked):
        with pytest.raises(DataError, match=r"ended after [\d,]+ of 300,000 bytes\); .*set.bin.part keeps "):
            fetched(url, tmp_path, digest="")
        assert len(asked) == download.MAX_CONNECTIONS and len(set(asked)) == download.MAX_CONNECTIONS
    assert (tmp_path / "set.bin.part").read_bytes() == CONTENT[: (tmp_path / "set.bin.part").stat().st_size]
    with serving(CONTENT) as (url, _):
        assert fetched(url, tmp_path) == CONTENT


def test_a_silent_server_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "CONNECT_TIMEOUT_S", 0.3)
    monkeypatch.setattr(download, "MAX_CONNECTIONS", 2)
    start = time.monotonic()
    with serving(CONTENT, "silent") as (url, _), pytest.raises(DataError, match="cannot be downloaded"):
        fetched(url, tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as listener:  # takes connections and says nothing
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/mute.bin"
        with pytest.raises(DataError, match=f"timed out.*; without network, put it at {tmp_path / 'mute.bin'}"):
            fetched(url, tmp_path)
    assert time.monotonic() - start < 4


@pytest.mark.parametrize(
    ("how", "digest", "size", "complaint"),
    [
        ("page", "", 300_000, "answers with a web page instead of the file"),
        ("refused", SHA256, 300_000, "HTTP Error 403"),
        ("endless", SHA256, 300_000, "sends more than 2,097,152 bytes"),
        ("well", "", 400_000, r"arrived damaged or changed \(300,000 bytes, expected about 400,000\)"),
        ("well", "0" * 64, 300_000, r"arrived damaged or changed \(digest"),
    ],
)
def test_what_is_not_the_official_file_is_refused(
    how: str, digest: str, size: int, complaint: str, tmp_path: Path
) -> None:
    with serving(CONTENT, how) as (url, _), pytest.raises(DataError, match=complaint) as refused:
        fetched(url, tmp_path, digest, size)
    assert "\n" not in str(refused.value) and not (tmp_path / "set.bin").exists()
