"""Official files: downloaded once, verified, and put in place whole, even if two processes start together.

Written by hand because pooch 1.9 neither resumes nor bounds a download, and reads no file:// URL; requests, urllib3 and
torch.hub leave an answer that ends early for the caller to find.
"""

from __future__ import annotations

import hashlib
import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from filelock import FileLock

from sliceformer_lab.data.archives import unpack
from sliceformer_lab.data.parallel import Pace
from sliceformer_lab.errors import DataError
from sliceformer_lab.runs.files import digest_of

log = logging.getLogger(__name__)

SLOW_LINE = 2e6  # bytes per second, for the estimate that is printed before a download
CONNECT_TIMEOUT_S = 30.0  # seconds without an answer, after which a connection is given up
MIN_BYTES_PER_S = 1000.0  # bytes per second, over CONNECT_TIMEOUT_S
MAX_CONNECTIONS = 5  # connections for one download; each continues the last one
BLOCK_BYTES = 1 << 20  # bytes
SIZE_TOLERANCE = 0.1  # of the size of a file without a known digest


@dataclass(frozen=True)
class OfficialFile:
    """A file as its owners publish it."""

    url: str
    digest: str  # md5 (32 digits) or sha256 (64) of the whole file; empty where neither is known
    size: int  # bytes, approximately

    @property
    def name(self) -> str:
        """The last part of the URL, without its query."""
        return self.url.rpartition("/")[2].partition("?")[0]


def md5_of(path: Path) -> str:
    """The md5 sum of a file. Raises DataError if it is missing."""
    if not path.is_file():
        raise DataError(f"{path} is missing; put it there, or delete {path.parent} to download the set again")
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def _digest_of(path: Path, like: str) -> str:
    """The sha256 of a file, or its md5 if `like` is one."""
    return md5_of(path) if len(like) == 32 else digest_of(path)


def verify(path: Path, digest: str) -> None:
    """Raises DataError unless the file has this md5 or sha256."""
    if (found := _digest_of(path, digest)) != digest:
        raise DataError(
            f"{path} is not the official file (digest {found}, expected {digest}); delete it to download it again, "
            "or set data.verify=false to use this copy, which results then call unofficial"
        )


def fetch(file: OfficialFile, folder: Path, *, download: bool, check: bool) -> Path:
    """The path of an official file in `folder`, downloaded if it is not there.

    Raises DataError if it is missing and cannot be downloaded, or with `check` if its content differs.
    """
    path = folder / file.name
    if not path.is_file():
        if not download:
            raise DataError(f"{path} is missing and data.download=false; put {file.url} there")
        with lock_preparation(folder):
            if not path.is_file():  # another process may have downloaded it meanwhile
                _download(file, path)
    elif check and file.digest:
        verify(path, file.digest)
    return path


def fetch_unpacked(file: OfficialFile, folder: Path, inner: str, *, download: bool, check: bool) -> Path:
    """The folder `inner` of an official archive, unpacked into `folder` unless it is there. Raises DataError."""
    target = folder / inner
    if not target.is_dir():
        archive = fetch(file, folder, download=download, check=check)
        with lock_preparation(folder):
            if not target.is_dir():  # another process may have unpacked it meanwhile
                unpack(archive, target)
    return target


@contextmanager
def lock_preparation(folder: Path) -> Iterator[None]:
    """Lets one process at a time write into `folder`, and makes the folder if needed. Raises DataError if it cannot."""
    lock = FileLock(folder / ".preparing.lock")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except OSError as error:
        raise unwritable_folder(folder, error) from error
    try:
        yield
    finally:
        lock.release()


def unwritable_folder(folder: Path, error: OSError) -> DataError:
    """The error for a folder of data that cannot be written."""
    return DataError(f"{folder} cannot be written ({error}); choose another folder by data.root=...")


class _BrokenOffError(Exception):
    """A connection that failed or ended early; another one may continue the download."""


def _download(file: OfficialFile, path: Path) -> None:
    """Downloads to NAME.part, which a later start continues, checks it and renames it. Raises DataError."""
    minutes = file.size / SLOW_LINE / 60
    log.info(
        f"Downloading {file.url} to {path} ({file.size / 1e6:.1f} MB, {minutes:.1f} min at {SLOW_LINE / 1e6:.0f} MB/s)"
    )
    part = path.with_name(f"{path.name}.part")
    for attempt in range(1, MAX_CONNECTIONS + 1):
        before = _size_of(part)
        try:
            _receive_rest(file, part)
            break
        except _BrokenOffError as error:
            if attempt == MAX_CONNECTIONS or _size_of(part) <= before:
                kept = (
                    f"; {part} keeps its {_size_of(part):,} bytes, and the next start continues it"
                    if part.exists()
                    else ""
                )
                raise DataError(
                    f"{file.url} cannot be downloaded ({error}){kept}; without network, put it at {path}"
                ) from error
    if fault := _find_fault(file, part):
        part.unlink()
        raise DataError(f"{file.url} arrived damaged or changed ({fault}); start again, or put it at {path}")
    with part.open("rb+") as content:
        os.fsync(content.fileno())
    part.replace(path)


def _size_of(part: Path) -> int:
    return part.stat().st_size if part.is_file() else 0


def _find_fault(file: OfficialFile, part: Path) -> str | None:
    """What is wrong with a complete download; None for the official file."""
    if file.digest:
        found = _digest_of(part, file.digest)
        return None if found == file.digest else f"digest {found}, expected {file.digest}"
    size = _size_of(part)
    return (
        None if abs(size - file.size) <= SIZE_TOLERANCE * file.size else f"{size:,} bytes, expected about {file.size:,}"
    )


def _receive_rest(file: OfficialFile, part: Path) -> None:
    """Appends the rest of a file to `part`. Raises _BrokenOffError, or DataError for an answer that is another file."""
    done = _size_of(part)
    with _open_answer(file.url, done) as answer:
        if answer.headers.get_content_type() == "text/html":
            raise DataError(f"{file.url} answers with a web page instead of the file; open it in a browser to see why")
        if done and answer.status != 206:  # the server sends the file from its start
            done = 0
        length = answer.headers.get("Content-Length")
        expected = None if length is None else done + int(length)
        limit = 2 * max(file.size, BLOCK_BYTES) if expected is None else expected
        pace = Pace("bytes", expected or file.size)
        with part.open("ab" if done else "wb") as content:
            for block in _read_blocks(answer):
                content.write(block)
                done += len(block)
                pace.update(done)
                if done > limit:
                    raise DataError(f"{file.url} sends more than {limit:,} bytes, expected about {file.size:,}")
    if expected is not None and done < expected:
        raise _BrokenOffError(f"the connection ended after {done:,} of {expected:,} bytes")


@contextmanager
def _open_answer(url: str, done: int) -> Iterator[Any]:
    """The answer to a request for a file from byte `done` on, or for the whole file. Raises _BrokenOffError."""
    rest = Request(url, headers={"Range": f"bytes={done}-"} if done else {})
    try:
        try:
            answer = urlopen(rest, timeout=CONNECT_TIMEOUT_S)
        except HTTPError as error:
            if error.code != 416:  # there is no such byte: what was kept is no part of this file
                raise
            answer = urlopen(url, timeout=CONNECT_TIMEOUT_S)
    except (OSError, HTTPException) as error:  # URLError and HTTPError are OSErrors
        raise _BrokenOffError(str(error)) from error
    with answer:
        yield answer


def _read_blocks(answer: Any) -> Iterator[bytes]:
    """The bytes of an answer. Raises _BrokenOffError if none arrive, or too few."""
    since, received = time.monotonic(), 0
    while True:
        try:
            block = answer.read1(BLOCK_BYTES)
        except (OSError, HTTPException) as error:
            raise _BrokenOffError(str(error)) from error
        if not block:
            return
        yield block
        received += len(block)
        seconds = time.monotonic() - since
        if seconds > CONNECT_TIMEOUT_S:
            if received < MIN_BYTES_PER_S * seconds:
                raise _BrokenOffError(f"{received:,} bytes in {seconds:.0f} seconds")
            since, received = time.monotonic(), 0
