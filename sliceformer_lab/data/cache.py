"""Cache folders of prepared data: made once for each set of options, shared by all processes, replaced if damaged."""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from sliceformer_lab.data.download import lock_preparation
from sliceformer_lab.errors import DataError
from sliceformer_lab.runs.files import digest_of, digest_of_json, write_json

CACHE_VERSION = 2  # of the layout of the files; folders of another version are made again
MANIFEST = "manifest.json"
DIGESTS = ".file_digests.json"  # beside the cache folders
LARGE, SETTLED = 64 * 2**20, 2.0  # bytes, seconds
IDENTITY = "identity_"  # begins the names of files that say where examples come from

log = logging.getLogger(__name__)


def cached_folder(
    parent: Path, name: str, key: Mapping[str, Any], build: Callable[[Path], None], *, continues: bool = False
) -> Path:
    """The folder `parent/name-<digest of key>`, filled by `build(folder)` unless it is there and complete.

    `key` holds everything that decides the content, as plain values; of a Path, the bytes of its file count, of a
    function, what it returns. `build` works in `<folder>.unfinished`. A build that `continues` finds there the files of
    one that failed or was stopped; without it, they are deleted. A folder of another version, or with a file missing or
    changed, is made again. Raises DataError if `parent` is not writable, or if the key changes during the build.
    """
    known = _with_digests(key, parent)
    folder = parent / f"{name}-{digest_of_json(known)[:12]}"
    if is_complete(folder, known):
        return folder

    def build_of_these(unfinished: Path) -> None:
        build(unfinished)
        if _with_digests(key, parent) != known:
            raise DataError(f"the files of {name} have changed while they were read; start again")

    with lock_preparation(parent):
        if not is_complete(folder, known):  # another process may have made it meanwhile
            _make_cache(folder, known, build_of_these, continues)
    return folder


def manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a cache folder: key, files (name -> bytes and sha256), and seconds that making it took."""
    content: dict[str, Any] = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    return content


def content_digest(folder: Path) -> str:
    """One sha256 for all files of a cache folder, except those that only say where examples come from."""
    files = manifest(folder)["files"]
    lines = [f"{name} {files[name]['sha256']}\n" for name in sorted(files) if not name.startswith(IDENTITY)]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def by_name(paths: Iterable[Path]) -> dict[str, Path]:
    """Files by their names, as part of the key of a cache, which knows them by their content."""
    return {path.name: path for path in paths}


def stamp_of(file: Path) -> list[int]:
    """Inode, size, and times of modification and change in ns. Any write sets the last, which no program can choose."""
    status = file.stat()
    return [status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns]


def digest_of_stamps(files: Iterable[Path]) -> str:
    """One sha256 of folders, names and stamps, for files of which there are too many to read before every run."""
    found = hashlib.sha256()
    for file in files:
        found.update(f"{file.parent.name}/{file.name} {stamp_of(file)}\n".encode())
    return found.hexdigest()


def file_digest(file: Path, parent: Path) -> str:
    """sha256 of the bytes of a file. `parent` remembers those of large files, which take seconds.

    A remembered digest holds while path and stamp are the same; that of a file which was written within the last
    SETTLED seconds is not remembered.
    """
    stamp = stamp_of(file)
    if stamp[1] < LARGE:
        return digest_of(file)
    place = str(file.resolve())
    known: dict[str, Any] = {}
    with suppress(OSError, ValueError):
        known = json.loads((parent / DIGESTS).read_text(encoding="utf-8"))
    if place in known and known[place]["stamp"] == stamp:
        return str(known[place]["sha256"])
    known[place] = {"stamp": stamp, "sha256": digest_of(file)}
    if time.time() - stamp[-1] / 1e9 > SETTLED:
        with suppress(OSError):
            parent.mkdir(parents=True, exist_ok=True)
            write_json(parent / DIGESTS, known)
    return str(known[place]["sha256"])


def is_complete(folder: Path, key: Mapping[str, Any]) -> bool:
    """Whether the folder was made from this key and holds all files of its manifest as they were written."""
    try:
        known = manifest(folder)
        digests = {name: entry["sha256"] for name, entry in known["files"].items()}
        return bool(known["key"] == key) and all(
            file_digest(folder / name, folder.parent) == digest for name, digest in digests.items()
        )
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _with_digests(key: Mapping[str, Any], parent: Path) -> dict[str, Any]:
    """A key as it reads back from the manifest, with digests of the files."""

    def digest(value: Path | Callable[[], str]) -> str:
        return value() if callable(value) else file_digest(value, parent)

    text = json.dumps({"cache_version": CACHE_VERSION, **key}, default=digest)
    found: dict[str, Any] = json.loads(text)
    return found


def _make_cache(folder: Path, key: Mapping[str, Any], build: Callable[[Path], None], continues: bool) -> None:
    unfinished = folder.with_name(folder.name + ".unfinished")
    if not continues:
        shutil.rmtree(unfinished, ignore_errors=True)  # of a killed process
    if folder.exists():
        log.info(f"{folder} is incomplete, changed or of another version; making it again")
        shutil.rmtree(folder)
    unfinished.mkdir(parents=True, exist_ok=True)
    start = time.monotonic()
    try:
        build(unfinished)
    except BaseException:
        if not continues:
            shutil.rmtree(unfinished, ignore_errors=True)
        raise
    files = {
        file.name: {"bytes": file.stat().st_size, "sha256": digest_of(file)}
        for file in sorted(unfinished.iterdir())
        if file.is_file()
    }
    seconds = round(time.monotonic() - start, 1)
    write_json(unfinished / MANIFEST, {"key": dict(key), "files": files, "seconds": seconds})
    unfinished.replace(folder)
    log.info(f"prepared {folder} in {seconds:.0f} s")
