"""Writes whole files or nothing, so that a kill or a full disk never destroys an existing file."""

from __future__ import annotations

import io
import json
import math
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

SPARE = 64 * 1024  # bytes: more than a summary and the last lines of a log


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Yields a temporary path in the folder of `path`; on success its file is flushed to disk and renamed to `path`.

    On an error the temporary file is removed and `path` does not change; an OSError without a file gets its name.
    """
    unfinished = path.with_name(path.name + ".unfinished")
    try:
        yield unfinished
        with unfinished.open("rb+") as file:
            os.fsync(file.fileno())
        unfinished.replace(path)
    except OSError as error:
        if error.filename is None:  # as in every failed write
            error.filename = str(path)
        raise
    finally:
        unfinished.unlink(missing_ok=True)


@contextmanager
def whole_bytes(path: Path) -> Iterator[io.BytesIO]:
    """Yields a file in memory; on success it is written to `path` at once, whole or not at all."""
    content = io.BytesIO()
    yield content
    with whole_file(path) as unfinished:
        unfinished.write_bytes(content.getbuffer())


@contextmanager
def spare_space(folder: Path) -> Iterator[Callable[[], None]]:
    """Keeps some space of a disk, and yields a function that frees it: a run records its end even on a full disk."""
    file = folder / ".spare"

    def free() -> None:
        file.unlink(missing_ok=True)

    with whole_file(file) as unfinished:
        unfinished.write_bytes(os.urandom(SPARE))  # zeros would take no space on some disks
    try:
        yield free
    finally:
        free()


def name_of(path: str | Path) -> str:
    """The name of a file without its endings, or the name of a folder: `table` of table.csv.gz."""
    path = Path(path).expanduser()
    return path.resolve().name if path.is_dir() else path.name.removesuffix(".gz").rpartition(".")[0] or path.name


def write_text(path: Path, text: str) -> None:
    """Writes a whole text file or nothing."""
    with whole_file(path) as unfinished:
        unfinished.write_text(text, encoding="utf-8")


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Writes a whole JSON file or nothing. NaN and infinity, which JSON does not have, become null."""
    write_text(path, json.dumps(_strict(content), indent=2, allow_nan=False) + "\n")


def _strict(value: Any) -> Any:
    """The value with null in place of NaN and infinity."""
    if isinstance(value, Mapping):
        return {key: _strict(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_strict(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
