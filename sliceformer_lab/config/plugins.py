"""Installed packages that add options: entry points of the group `sliceformer_lab.plugins`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib.machinery import ModuleSpec
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path

from sliceformer_lab.errors import ConfigError
from sliceformer_lab.runs.files import files_below

ENTRY_POINT_GROUP = "sliceformer_lab.plugins"


@dataclass(frozen=True)
class Plugin:
    """A package whose code nodes may name, and its folder `conf` with one folder for each option group."""

    package: str
    conf: Path


@cache
def plugins() -> tuple[Plugin, ...]:
    """The installed plugins, sorted by name. Nothing of a top-level package is imported.

    Whoever installs a plugin trusts its code. Raises ConfigError for an entry point that names no package with a
    folder `conf`.
    """
    points = sorted(entry_points(group=ENTRY_POINT_GROUP), key=lambda point: point.name)
    return tuple(_read_plugin(point.name, point.value) for point in points)


def _read_plugin(name: str, package: str) -> Plugin:
    folders = package_folders(package)
    conf = next((folder / "conf" for folder in folders if (folder / "conf").is_dir()), None)
    if conf is None:
        reason = "has no folder conf" if folders else "is no package"
        raise ConfigError(
            f'the installed plugin {name} = "{package}" {reason}; '
            f"an entry point of {ENTRY_POINT_GROUP} names a package with a folder conf"
        )
    return Plugin(package, conf.resolve())


def package_folders(package: str) -> list[Path]:
    """The folders of an importable package; [] if there is no such package."""
    spec = _find_spec(package)
    return [Path(place) for place in (spec and spec.submodule_search_locations) or ()]


def package_files(package: str) -> list[Path]:
    """The Python files of a top-level package or module, which is not imported; [] if there is none."""
    spec = _find_spec(package)
    if folders := package_folders(package):
        return sorted(file for folder in folders for file in files_below(folder) if file.suffix == ".py")
    return [Path(spec.origin)] if spec is not None and spec.has_location and spec.origin else []


def _find_spec(package: str) -> ModuleSpec | None:
    if not re.fullmatch(r"[^\W\d]\w*(\.[^\W\d]\w*)*", package):
        return None
    try:
        return find_spec(package)
    except (ImportError, ValueError):
        return None
