"""Which configuration a resumed run has: its own, but for what cannot change its result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sliceformer_lab.config import ConfigError
from sliceformer_lab.record import read_config

NODES = ("trainer", "logger", "callbacks", "paths")  # taken from the command line where it names them
WHERE_DATA_LIES = ("data.root", "data.download", "data.verify")
OURS = ("mode", "resume", "allow_targets", "hydra")


def resumed_config(config: Mapping[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """The saved configuration of the folder `config["resume"]` with the allowed `overrides` of the command line.

    Raises ConfigError for an override that would make it another run, RunFolderError if the folder is none.
    """
    saved = read_config(Path(config["resume"]))
    keys = [override.lstrip("+~").split("=")[0].split("@")[0] for override in overrides]
    for key, override in zip(keys, overrides, strict=True):
        if key.split(".")[0] not in NODES + OURS and key not in WHERE_DATA_LIES:
            allowed = ", ".join([*NODES, "mode", *WHERE_DATA_LIES])
            raise ConfigError(f"{override}: a resumed run keeps its configuration but for {allowed}; start a new run")
    named = {key.split(".")[0] for key in keys}
    merged = saved | {node: config[node] for node in NODES if node in named}
    if "paths" in named:
        moved = str(saved["data"]["root"]).replace(str(saved["paths"]["data"]), str(config["paths"]["data"]), 1)
        merged["data"] = merged["data"] | {"root": moved}
    for key in WHERE_DATA_LIES:
        option = key.removeprefix("data.")
        if key in keys and option in saved["data"]:
            merged["data"] = merged["data"] | {option: config["data"][option]}
    return merged | {"mode": config["mode"], "resume": str(config["resume"])}
