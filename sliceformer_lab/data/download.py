"""Official files: fetched once, verified, and put in place whole, also when two processes ask at once."""

from __future__ import annotations

import gzip
import hashlib
import tarfile
import tempfile
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock
from pytorch_lightning.utilities import rank_zero_info
from torch.hub import download_url_to_file

from sliceformer_lab.errors import DataError

SLOW_LINE = 2e6  # bytes per second, for the time told before a download


@dataclass(frozen=True)
class OfficialFile:
    """A file as its owners publish it."""

    url: str
    md5: str
    size: int  # bytes

    @property
    def name(self) -> str:
        return self.url.rpartition("/")[2]


def md5_of(path: Path) -> str:
    """The md5 sum of a file's content, unpacked if it ends in .gz. Raises DataError if it cannot be unpacked."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise _damaged(path, error) from error


def verify(path: Path, md5: str) -> None:
    """Raises DataError unless the file has this md5 sum."""
    if (found := md5_of(path)) != md5:
        raise DataError(
            f"{path} is not the official file (md5 {found}, expected {md5}); delete it to fetch it again, "
            "or say data.verify=false to use this copy under a name of its own"
        )


def fetch(file: OfficialFile, folder: Path, *, download: bool, check: bool) -> Path:
    """The path of an official file in `folder`, downloaded if it is not there.

    Raises DataError if it is missing and cannot be had, or if `check` and its content differs.
    """
    path = folder / file.name
    if path.is_file():
        if check:
            verify(path, file.md5)
        return path
    if not download:
        raise DataError(f"{path} is missing and data.download=false; put {file.name} from {file.url} there")
    minutes = file.size / SLOW_LINE / 60
    rank_zero_info(
        f"Downloading {file.url} ({file.size / 1e6:.0f} MB, about {minutes:.1f} min on a slow line) to {path}"
    )
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        partial = Path(temporary) / file.name
        try:
            download_url_to_file(file.url, str(partial))
        except OSError as error:  # URLError and HTTPError are OSErrors
            raise DataError(f"{file.url} cannot be downloaded ({error}); without network put it at {path}") from error
        verify(partial, file.md5)
        partial.replace(path)
    return path


def fetch_unpacked(file: OfficialFile, folder: Path, inner: str, *, download: bool, check: bool) -> Path:
    """The folder `inner` of an official archive, unpacked into `folder` unless it is there. Raises DataError."""
    target = folder / inner
    if not target.is_dir():
        with preparing(folder):
            if not target.is_dir():  # another process may have been first
                _unpack(_archive_for(target, file, download=download, check=check), target)
    return target


def preparing(folder: Path) -> FileLock:
    """A lock that lets one process at a time write into `folder`, which is made if need be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"{folder} cannot be made ({error}); say where data may live with data.root=FOLDER") from error
    return FileLock(folder / ".preparing.lock")


def _archive_for(target: Path, file: OfficialFile, *, download: bool, check: bool) -> Path:
    try:
        return fetch(file, target.parent, download=download, check=check)
    except DataError as error:
        if (target.parent / file.name).is_file():
            raise
        raise DataError(f"{error}, or its folder at {target}") from error.__cause__


def _unpack(archive: Path, target: Path) -> None:
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
            raise _damaged(archive, error) from error


def _damaged(path: Path, error: Exception) -> DataError:
    return DataError(f"{path} is damaged ({error}); delete it and start again")
