"""Unpacks archives that may be damaged or hostile: nothing leaves the folder, and there is a bound on its size."""

from __future__ import annotations

import tarfile
import tempfile
import zipfile
from pathlib import Path

from sliceformer_lab.errors import DataError, LabError, machine_error

MAX_UNPACKED_RATIO, MAX_UNPACKED_BYTES = 20, 100_000_000  # an archive may unpack to 20 times its size and 100 MB


def unpack(archive: Path, target: Path) -> None:
    """Unpacks a tar or zip archive next to `target` and moves its folder of that name there.

    Raises DataError if it is damaged or too large, MachineError if the disk is full. Then nothing is left.
    """
    with tempfile.TemporaryDirectory(dir=target.parent) as temporary:
        try:
            if tarfile.is_tarfile(archive):
                _unpack_tar(archive, temporary)
            else:
                _unpack_zip(archive, temporary)
        except LabError:
            raise
        except Exception as error:  # of tarfile, zipfile and four libraries of compression
            raise machine_error(error, target) or DataError(
                f"{archive} is damaged ({error}); delete it and start again"
            ) from error
        if not (inner := Path(temporary) / target.name).is_dir():
            raise DataError(f"{archive} is not the official archive: it holds no folder {target.name}; replace it")
        inner.replace(target)


def _unpack_tar(archive: Path, folder: str) -> None:
    limit, total = _limit(archive), 0

    def within_limit(member: tarfile.TarInfo, path: str) -> tarfile.TarInfo | None:
        nonlocal total
        total += member.size
        if total > limit:
            raise _too_large(archive, limit)
        return tarfile.data_filter(member, path)

    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter=within_limit)


def _unpack_zip(archive: Path, folder: str) -> None:
    limit = _limit(archive)
    with zipfile.ZipFile(archive) as packed:
        if sum(member.file_size for member in packed.infolist()) > limit:
            raise _too_large(archive, limit)
        packed.extractall(folder)


def _limit(archive: Path) -> int:
    return MAX_UNPACKED_RATIO * archive.stat().st_size + MAX_UNPACKED_BYTES


def _too_large(archive: Path, limit: int) -> DataError:
    return DataError(f"{archive} would unpack to more than {limit:,} bytes, which no official archive does; replace it")
