"""Official files: downloaded once, verified, and put in place whole, even if two processes start together.

Written by hand because pooch 1.9 has neither resuming nor limits, reads no file:// URL, and unpacks tar archives on
Python 3.11 without the filter that keeps their members inside the folder.
"""

from __future__ import annotations

import hashlib
import logging
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path

from filelock import FileLock
from torch.hub import download_url_to_file

from sliceformer_lab.errors import DataError
from sliceformer_lab.runs.files import whole_file

log = logging.getLogger(__name__)

SLOW_LINE = 2e6  # bytes per second, for the estimate that is printed before a download


@dataclass(frozen=True)
class OfficialFile:
    """A file as its owners publish it."""

    url: str
    md5: str  # empty where no official sum is known
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


def verify(path: Path, md5: str) -> None:
    """Raises DataError unless the file has this md5 sum."""
    if (found := md5_of(path)) != md5:
        raise DataError(
            f"{path} is not the official file (md5 {found}, expected {md5}); delete it to download it again, "
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
        _download(file, path)
    elif check and file.md5:
        verify(path, file.md5)
    return path


def fetch_unpacked(file: OfficialFile, folder: Path, inner: str, *, download: bool, check: bool) -> Path:
    """The folder `inner` of an official archive, unpacked into `folder` unless it is there. Raises DataError."""
    target = folder / inner
    if not target.is_dir():
        with lock_folder(folder):
            if not target.is_dir():  # another process may have unpacked it meanwhile
                _unpack(fetch(file, folder, download=download, check=check), target)
    return target


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Lets one process at a time write into `folder`, and makes the folder if needed. Raises DataError if it cannot."""
    lock = FileLock(folder / ".preparing.lock")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except OSError as error:
        raise unwritable(folder, error) from error
    try:
        yield
    finally:
        lock.release()


def unwritable(folder: Path, error: OSError) -> DataError:
    """The error for a folder of data that cannot be written."""
    return DataError(f"{folder} cannot be written ({error}); choose another folder by data.root=...")


def _download(file: OfficialFile, path: Path) -> None:
    """Downloads to a temporary file, checks it and renames it, so that `path` never holds part of a file."""
    minutes = file.size / SLOW_LINE / 60
    log.info(
        f"Downloading {file.url} to {path} ({file.size / 1e6:.1f} MB, {minutes:.1f} min at {SLOW_LINE / 1e6:.0f} MB/s)"
    )
    with whole_file(path) as unfinished:
        try:
            download_url_to_file(file.url, str(unfinished))
        except (OSError, HTTPException) as error:  # URLError is an OSError
            raise DataError(f"{file.url} cannot be downloaded ({error}); without network, put it at {path}") from error
        if file.md5 and (found := md5_of(unfinished)) != file.md5:
            raise DataError(f"{file.url} arrived damaged or changed (md5 {found}, expected {file.md5}); start again")


def _unpack(archive: Path, target: Path) -> None:
    """Unpacks a tar or zip archive next to `target` and moves its folder of that name there. Raises DataError."""
    with tempfile.TemporaryDirectory(dir=target.parent) as temporary:
        try:
            if tarfile.is_tarfile(archive):
                with tarfile.open(archive) as tar:
                    tar.extractall(temporary, filter="data")
            else:
                with zipfile.ZipFile(archive) as packed:
                    packed.extractall(temporary)
            (Path(temporary) / target.name).replace(target)
        except (tarfile.TarError, zipfile.BadZipFile, EOFError, zlib.error, OSError) as error:
            raise DataError(f"{archive} is damaged ({error}); delete it and start again") from error
