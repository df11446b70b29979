"""The configuration of a resumed run: the saved one, except for options that cannot change its result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sliceformer_lab.config.checked import with_values
from sliceformer_lab.config.compose import option_names
from sliceformer_lab.config.schema import ConfigError
from sliceformer_lab.errors import RunFolderError
from sliceformer_lab.runs.folder import CONFIG, read_config
from sliceformer_lab.runs.sweep import override_key

NODES = ("trainer", "logger", "callbacks", "paths")
DATA_FILES = ("data.root", "data.download", "data.verify")
OBSERVERS = ("reference", "pictures")  # read a run's result and cannot change it
COMMAND_KEYS = ("mode", "resume", "allow_targets", "oversubscribe", "changed_data")


def saved_task(overrides: Sequence[str]) -> list[str]:
    """The `task=` override of the run that `resume=` names, so that options of its data are accepted; else [].

    A task of the user is no option without the folder that holds its YAML, and the saved configuration is enough.
    """
    folders = [Path(o.partition("=")[2].strip("'\"")).expanduser() for o in overrides if o.startswith("resume=")]
    tasks = [_names(folder, read_config(folder)).get("task") for folder in folders if (folder / CONFIG).is_file()]
    return [f"task={task}" for task in tasks if task in option_names("task")]


def resumed_config(config: Mapping[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """The saved configuration of the run folder `config["resume"]`, with the `overrides` of the command line.

    `config` is the configuration that the command line composes. Raises ConfigError for an override that would change
    the result, and RunFolderError if the folder has no configuration.
    """
    folder = Path(config["resume"]).expanduser()
    merged = saved = read_config(folder)
    same = {f"{group}={choice}" for group, choice in _names(folder, saved).items()}
    keys = [_allowed_key(override) for override in overrides if override not in same]
    if "paths.data" in keys and "root" in config["data"]:
        keys.append("data.root")
    for key in sorted({*keys, *COMMAND_KEYS}, key=lambda key: key.count(".")):  # a node comes before its keys
        merged = with_values(merged, {key: _value_at(config, key)})
    return merged


def _names(folder: Path, saved: Mapping[str, Any]) -> dict[str, Any]:
    """The choices of a saved run, by group. Raises RunFolderError if its configuration has none."""
    names = saved.get("names")
    if not isinstance(names, dict):
        raise RunFolderError(f"{folder / CONFIG} is not the configuration of a run: it has no names")
    return names


def _value_at(config: Mapping[str, Any], place: str) -> Any:
    """The value at a place such as trainer.devices; None if there is no such place."""
    node: Any = config
    for key in place.split("."):
        node = node.get(key) if isinstance(node, Mapping) else None
    return node


def what_differs(saved: Mapping[str, Any], config: Mapping[str, Any]) -> list[str]:
    """The top-level keys in which two configurations differ, apart from options that cannot change a result."""

    def relevant(config: Mapping[str, Any], key: str) -> Any:
        files = [name.removeprefix("data.") for name in DATA_FILES]
        return {k: v for k, v in config["data"].items() if k not in files} if key == "data" else config.get(key)

    keys = {*saved, *config} - {*NODES, *OBSERVERS, *COMMAND_KEYS}
    return sorted(key for key in keys if relevant(saved, key) != relevant(config, key))


def may_change(override: str) -> bool:
    """Whether an override may be given to a run that is resumed: it cannot change the result."""
    key = override_key(override)
    return key.split(".")[0] in (*NODES, *OBSERVERS) or key in (*DATA_FILES, *COMMAND_KEYS, "hydra.searchpath")


def _allowed_key(override: str) -> str:
    if not may_change(override):
        allowed = ", ".join([*NODES, *OBSERVERS, "mode", *DATA_FILES])
        raise ConfigError(f"{override}: a resumed run keeps its configuration, except {allowed}; start a new run")
    return override_key(override)
