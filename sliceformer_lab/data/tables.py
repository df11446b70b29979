"""Rows of tab-separated files, told by their line where they are wrong."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from sliceformer_lab.errors import DataError


def tsv_rows(path: Path, columns: int) -> Iterator[tuple[str, list[str]]]:
    """Where each row is, 'FILE, line 7', and its fields; nothing is quoted. Raises DataError."""
    with path.open("rb") as file:
        for number, raw in enumerate(file, start=1):
            where = f"{path}, line {number}"
            try:
                fields = raw.decode("utf-8").rstrip("\r\n").split("\t")
            except UnicodeDecodeError as error:
                raise DataError(f"{where}: is not UTF-8 ({error.reason}); convert the file to UTF-8") from None
            if len(fields) != columns:
                raise DataError(f"{where}: has {len(fields)} columns separated by tabs, expected {columns}")
            yield where, fields


def stamps(paths: list[Path]) -> dict[str, list[int]]:
    """Size and time of change of each file, by its name: what a cache made of large files is known by."""
    return {path.name: [path.stat().st_size, path.stat().st_mtime_ns] for path in paths}
