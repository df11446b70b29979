"""Unpacks archives that may be damaged or hostile: nothing leaves the folder, and there is a bound on its size."""

from __future__ import annotations

import tarfile
import tempfile
import zipfile
from collections.abc import Iterable
from itertools import accumulate
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
                with tarfile.open(archive) as tar:
                    _check_size(archive, (member.size for member in tar))
                    tar.extractall(temporary, filter="data")
            else:
                with zipfile.ZipFile(archive) as packed:
                    _check_size(archive, (member.file_size for member in packed.infolist()))
                    packed.extractall(temporary)
        except LabError:
            raise
        except Exception as error:  # of tarfile, zipfile and four libraries of compression
            raise machine_error(error, target) or DataError(
                f"{archive} is damaged ({error}); delete it and start again"
            ) from error
        if not (inner := Path(temporary) / target.name).is_dir():
            raise DataError(f"{archive} is not the official archive: it holds no folder {target.name}; replace it")
        inner.replace(target)


def _check_size(archive: Path, sizes: Iterable[int]) -> None:
    """Raises DataError if the members have too many bytes; reads no member after the one that exceeds the limit."""
    limit = MAX_UNPACKED_RATIO * archive.stat().st_size + MAX_UNPACKED_BYTES
    if any(total > limit for total in accumulate(sizes)):
        raise DataError(
            f"{archive} would unpack to more than {limit:,} bytes, which no official archive does; replace it"
        )
