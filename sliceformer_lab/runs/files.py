"""Writes whole files or nothing, so that a kill or a full disk never destroys an existing file."""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sliceformer_lab.errors import LabError

if sys.platform != "win32":
    import fcntl

WRITE_LOCK_TIMEOUT_S = 2.0  # seconds for another process that writes the same file
LOCK_POLL_S = 0.05  # seconds between two looks at its lock
SPARE_BYTES = 64 * 1024  # bytes: more than a summary and the last lines of a log
MAX_HASHED_BYTES = 10 * 10**9  # bytes of a folder that are read for its digest


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Yields a temporary path in the folder of `path`; on success its file is flushed to disk and renamed to `path`.

    On an error the temporary file is removed and `path` does not change; an OSError without a file gets its name.
    Raises LabError if another live process writes `path`.
    """
    unfinished = path.with_name(path.name + ".unfinished")
    try:
        with _hold_temporary(unfinished, path):
            try:
                yield unfinished
                with unfinished.open("rb+") as file:
                    os.fsync(file.fileno())
                unfinished.replace(path)
            except BaseException:
                unfinished.unlink(missing_ok=True)
                raise
    except OSError as error:
        if error.filename is None:  # as in every failed write
            error.filename = str(path)
        raise


@contextmanager
def _hold_temporary(unfinished: Path, path: Path) -> Iterator[None]:
    """Holds an empty temporary file of `path`; one that a killed process left is taken. Raises LabError."""
    deadline = time.monotonic() + WRITE_LOCK_TIMEOUT_S
    while (held := _lock_file(unfinished)) is None:
        if time.monotonic() > deadline:
            raise LabError(f"{path} is being written by another live process; wait for it, or choose another name")
        time.sleep(LOCK_POLL_S)
    try:
        os.truncate(held, 0)
        yield
    finally:
        os.close(held)


def _lock_file(file: Path) -> int | None:
    """A descriptor that locks a file, which is made if it is missing; None while another process holds it."""
    if file.is_symlink():  # it would be written through
        file.unlink()
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o666)
    try:
        _flock(descriptor, exclusive=True)
        if os.path.samestat(os.fstat(descriptor), file.stat()):  # else another process has finished and renamed it
            return descriptor
    except (BlockingIOError, FileNotFoundError):
        pass
    os.close(descriptor)
    return None


def _flock(descriptor: int, *, exclusive: bool) -> None:
    """Locks an open file; does nothing where there are no such locks. Raises BlockingIOError if it is locked."""
    if sys.platform == "win32":
        return
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:  # of a disk without locks
        return


def is_locked(file: Path) -> bool:
    """Whether a live process has locked a file. False for a link, and for what cannot be read."""
    try:
        descriptor = os.open(file, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    except OSError:
        return False
    try:
        _flock(descriptor, exclusive=False)
        if sys.platform == "win32":
            os.read(descriptor, 1)  # Windows refuses to read what is locked
    except (BlockingIOError, PermissionError):
        return True
    finally:
        os.close(descriptor)
    return False


@contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """Yields an empty folder beside `path`; on success it is renamed to `path`, on an error it is removed.

    Raises OSError if `path` exists by then.
    """
    unfinished = path.with_name(f"{path.name}.{os.getpid()}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)  # of a killed process with the same number
    try:
        unfinished.mkdir(parents=True)
        yield unfinished
        unfinished.replace(path)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


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
        unfinished.write_bytes(os.urandom(SPARE_BYTES))  # zeros would take no space on some disks
    try:
        yield free
    finally:
        free()


def name_of(path: str | Path) -> str:
    """The name of a file without its endings, or the name of a folder: `table` of table.csv.gz."""
    path = Path(path).expanduser()
    return path.resolve().name if path.is_dir() else path.name.removesuffix(".gz").rpartition(".")[0] or path.name


def digest_of(path: Path) -> str:
    """sha256 of the bytes of a file; of a folder, `digest_of_files` of all files in it, hidden ones aside."""
    if not path.is_dir():
        with path.open("rb") as content:
            return hashlib.file_digest(content, "sha256").hexdigest()
    names = [file.relative_to(path) for file in files_below(path)]
    return digest_of_files(path, (name for name in names if not any(part.startswith(".") for part in name.parts)))


def digest_of_files(folder: Path, names: Iterable[Path]) -> str:
    """sha256 of the names and contents of files in a folder; of names and sizes if reading would take minutes."""
    sizes = {name: (folder / name).stat().st_size for name in sorted(names)}
    is_read = sum(sizes.values()) <= MAX_HASHED_BYTES
    parts = {name.as_posix(): digest_of(folder / name) if is_read else size for name, size in sizes.items()}
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def files_below(folder: Path, above: tuple[Path, ...] = ()) -> Iterator[Path]:
    """The files in a folder and the folders in it; of links to folders all but those to one of `above`."""
    real = folder.resolve()
    if real in above or not os.access(real, os.R_OK | os.X_OK):  # as lost+found
        return
    for entry in sorted(folder.iterdir()):
        if entry.is_dir():
            yield from files_below(entry, (*above, real))
        elif entry.is_file():
            yield entry


def digest_of_json(value: object) -> str:
    """sha256 of a value as JSON, whatever the order of its keys."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def write_text(path: Path, text: str) -> None:
    """Writes a whole text file or nothing."""
    with whole_file(path) as unfinished:
        unfinished.write_text(text, encoding="utf-8")


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Writes a whole JSON file or nothing. NaN and infinity, which JSON does not have, become null."""
    write_text(path, json.dumps(_replace_nan(content), indent=2, allow_nan=False) + "\n")


def known_json(path: Path) -> dict[str, Any]:
    """The mapping in a JSON file; empty if there is none that can be read."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def _replace_nan(value: Any) -> Any:
    """The value with null in place of NaN and infinity."""
    if isinstance(value, Mapping):
        return {key: _replace_nan(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_replace_nan(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
