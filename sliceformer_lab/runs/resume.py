"""Which configuration a resumed run has: its own, but for what cannot change its result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from sliceformer_lab.config.compose import plain_values
from sliceformer_lab.config.schema import ConfigError
from sliceformer_lab.runs.folder import CONFIG, read_config

NODES = ("trainer", "logger", "callbacks", "paths")
WHERE_DATA_LIES = ("data.root", "data.download", "data.verify")
OF_THE_COMMAND = ("mode", "resume", "allow_targets")


def saved_task(overrides: Sequence[str]) -> list[str]:
    """`task=` of the run that `overrides` resume, if they do: else the keys of its data could not be given."""
    folders = [Path(o.partition("=")[2].strip("'\"")).expanduser() for o in overrides if o.startswith("resume=")]
    return [f"task={read_config(folder)['names']['task']}" for folder in folders if (folder / CONFIG).is_file()]


def resumed_config(config: Mapping[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """The saved configuration of the folder `config["resume"]` with the allowed `overrides` of the command line.

    `config` is what the command line composes to by itself. Raises ConfigError for an override that would make it
    another run, RunFolderError if the folder is none.
    """
    saved = read_config(Path(config["resume"]).expanduser())
    same = {f"{group}={choice}" for group, choice in saved["names"].items()}
    keys = [_allowed_key(override) for override in overrides if override not in same]
    if "paths.data" in keys and "root" in config["data"]:
        keys.append("data.root")
    composed, merged = OmegaConf.create(dict(config)), OmegaConf.create(saved)
    for key in sorted({*keys, *OF_THE_COMMAND}, key=lambda key: key.count(".")):  # a node before its keys
        OmegaConf.update(merged, key, OmegaConf.select(composed, key), merge=False, force_add=True)
    return plain_values(merged)


def what_differs(saved: Mapping[str, Any], config: Mapping[str, Any]) -> list[str]:
    """The keys of the top level in which two configurations would give different runs."""

    def result_of(whole: Mapping[str, Any], key: str) -> Any:
        place = [name.removeprefix("data.") for name in WHERE_DATA_LIES]
        return {k: v for k, v in whole["data"].items() if k not in place} if key == "data" else whole.get(key)

    keys = {*saved, *config} - {*NODES, *OF_THE_COMMAND}
    return sorted(key for key in keys if result_of(saved, key) != result_of(config, key))


def _allowed_key(override: str) -> str:
    key = override.lstrip("+~").partition("=")[0]
    if key.split(".")[0] not in NODES and key not in (*WHERE_DATA_LIES, *OF_THE_COMMAND):
        allowed = ", ".join([*NODES, "mode", *WHERE_DATA_LIES])
        raise ConfigError(f"{override}: a resumed run keeps its configuration but for {allowed}; start a new run")
    return key
