"""The configuration of a resumed run: the saved one, except for options that cannot change its result."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from sliceformer_lab.config.compose import option_names, plain_values
from sliceformer_lab.config.schema import ConfigError
from sliceformer_lab.runs.folder import CONFIG, read_config

NODES = ("trainer", "logger", "callbacks", "paths")
DATA_FILES = ("data.root", "data.download", "data.verify")
OBSERVERS = ("reference", "pictures")  # read a run's result and cannot change it
COMMAND_KEYS = ("mode", "resume", "allow_targets", "oversubscribe")


def saved_task(overrides: Sequence[str]) -> list[str]:
    """The `task=` override of the run that `resume=` names, so that options of its data are accepted; else [].

    A task of the user is no option without the folder that holds its YAML, and the saved configuration is enough.
    """
    folders = [Path(o.partition("=")[2].strip("'\"")).expanduser() for o in overrides if o.startswith("resume=")]
    tasks = [read_config(folder)["names"]["task"] for folder in folders if (folder / CONFIG).is_file()]
    return [f"task={task}" for task in tasks if task in option_names("task")]


def resumed_config(config: Mapping[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """The saved configuration of the run folder `config["resume"]`, with the `overrides` of the command line.

    `config` is the configuration that the command line composes. Raises ConfigError for an override that would change
    the result, and RunFolderError if the folder has no configuration.
    """
    saved = read_config(Path(config["resume"]).expanduser())
    same = {f"{group}={choice}" for group, choice in saved["names"].items()}
    keys = [_allowed_key(override) for override in overrides if override not in same]
    if "paths.data" in keys and "root" in config["data"]:
        keys.append("data.root")
    composed, merged = OmegaConf.create(dict(config)), OmegaConf.create(saved)
    for key in sorted({*keys, *COMMAND_KEYS}, key=lambda key: key.count(".")):  # a node comes before its keys
        OmegaConf.update(merged, key, OmegaConf.select(composed, key), merge=False, force_add=True)
    return plain_values(merged)


def what_differs(saved: Mapping[str, Any], config: Mapping[str, Any]) -> list[str]:
    """The top-level keys in which two configurations differ, apart from options that cannot change a result."""

    def relevant(config: Mapping[str, Any], key: str) -> Any:
        files = [name.removeprefix("data.") for name in DATA_FILES]
        return {k: v for k, v in config["data"].items() if k not in files} if key == "data" else config.get(key)

    keys = {*saved, *config} - {*NODES, *OBSERVERS, *COMMAND_KEYS}
    return sorted(key for key in keys if relevant(saved, key) != relevant(config, key))


def with_values(config: Mapping[str, Any], values: Mapping[str, object]) -> dict[str, Any]:
    """The configuration with other values at some places, such as {"data.batch_size": 32}."""
    changed = copy.deepcopy(dict(config))
    for place, value in values.items():
        *nodes, key = place.split(".")
        node = changed
        for name in nodes:
            node = node[name]
        node[key] = value
    return changed


def _allowed_key(override: str) -> str:
    key = override.lstrip("+~").partition("=")[0]
    if key.split(".")[0] not in (*NODES, *OBSERVERS) and key not in (*DATA_FILES, *COMMAND_KEYS):
        allowed = ", ".join([*NODES, *OBSERVERS, "mode", *DATA_FILES])
        raise ConfigError(f"{override}: a resumed run keeps its configuration, except {allowed}; start a new run")
    return key
