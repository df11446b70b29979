"""Folders of prepared data: made once for each set of options, whole or made again, shared by all processes."""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from sliceformer_lab.data.download import preparing

CACHE_VERSION = 1  # of the files' layout; another one is made anew
MANIFEST = "manifest.json"

log = logging.getLogger(__name__)


def cached(parent: Path, name: str, key: Mapping[str, Any], build: Callable[[Path], None]) -> Path:
    """The folder `parent/name-<digest of key>`, filled by `build(folder)` unless a whole one is there.

    `key` is everything that the content follows from, as plain values. `build` works in `<folder>.unfinished`; an
    earlier try that was stopped is still in it, for a build that can go on (others write over it). A folder of another
    version, or with a file missing or of another size, is made again. Raises DataError where `parent` is not writable.
    """
    key = json.loads(json.dumps({"cache_version": CACHE_VERSION, **key}))  # as the manifest will show it
    folder = parent / f"{name}-{_digest(key)}"
    if is_whole(folder, key):
        return folder
    with preparing(parent):
        if not is_whole(folder, key):  # another process may have been first
            _make(folder, key, build)
    return folder


def manifest(folder: Path) -> dict[str, Any]:
    """What a cache folder says of itself: key, files (name -> bytes and sha256), seconds it took."""
    content: dict[str, Any] = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    return content


def content_digest(folder: Path) -> str:
    """One sha256 for the files of a cache folder."""
    files = manifest(folder)["files"]
    return hashlib.sha256("".join(f"{name} {files[name]['sha256']}\n" for name in sorted(files)).encode()).hexdigest()


def is_whole(folder: Path, key: Mapping[str, Any]) -> bool:
    """Whether the folder holds all that its manifest names, made from this key."""
    try:
        known = manifest(folder)
        sizes = {name: entry["bytes"] for name, entry in known["files"].items()}
        return bool(known["key"] == key) and all((folder / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _make(folder: Path, key: Mapping[str, Any], build: Callable[[Path], None]) -> None:
    unfinished = folder.with_name(folder.name + ".unfinished")
    if folder.exists():
        log.info(f"{folder} is incomplete or of another version; making it again")
        shutil.rmtree(folder)
    unfinished.mkdir(parents=True, exist_ok=True)
    start = time.monotonic()
    build(unfinished)
    files = {
        file.name: {"bytes": file.stat().st_size, "sha256": _sha256(file)}
        for file in sorted(unfinished.iterdir())
        if file.is_file()
    }
    seconds = round(time.monotonic() - start, 1)
    content = {"key": dict(key), "files": files, "seconds": seconds}
    (unfinished / MANIFEST).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    unfinished.replace(folder)
    log.info(f"prepared {folder} in {seconds:.0f} s")


def _digest(key: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:12]


def _sha256(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
