"""The configuration of a resumed run: the saved one, except for options that cannot change its result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sliceformer_lab.config.checked import with_values
from sliceformer_lab.config.compose import option_names
from sliceformer_lab.config.plain_checks import value_at
from sliceformer_lab.config.schema import ConfigError
from sliceformer_lab.errors import RunFolderError
from sliceformer_lab.runs.folder import CONFIG, read_config
from sliceformer_lab.runs.score_options import COMPUTING_OPTIONS
from sliceformer_lab.runs.sweep import override_key

FREE_OPTIONS = (  # nodes and options that cannot change the result of a run
    *("logger", "paths", "reference", "pictures", "data.root", "data.download", "data.verify", *COMPUTING_OPTIONS),
    *("callbacks.spectrum", "callbacks.progress", "callbacks.throughput", "callbacks.checkpoints.every_minutes"),
)
PROCESS_OPTIONS = ("trainer.devices", "trainer.num_nodes")  # training with another number of processes is refused later
CHOSEN_NODES = ("trainer", "callbacks")  # only their free options change
COMMAND_KEYS = ("mode", "resume", "allow_targets", "oversubscribe", "changed_data")


def saved_task(overrides: Sequence[str]) -> list[str]:
    """The `task=` override of the run that `resume=` names, so that options of its data are accepted; else [].

    A task of the user is no option without the folder that holds its YAML, and the saved configuration is enough.
    """
    folders = [Path(o.partition("=")[2].strip("'\"")).expanduser() for o in overrides if o.startswith("resume=")]
    tasks = [_read_names(folder, read_config(folder)).get("task") for folder in folders if (folder / CONFIG).is_file()]
    return [f"task={task}" for task in tasks if task in option_names("task")]


def resumed_config(config: Mapping[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """The saved configuration of the run folder `config["resume"]`, with the `overrides` of the command line.

    `config` is the configuration that the command line composes. Raises ConfigError for an override that would change
    the result, and RunFolderError if the folder has no configuration.
    """
    folder = Path(config["resume"]).expanduser()
    merged = saved = read_config(folder)
    same = {f"{group}={choice}" for group, choice in _read_names(folder, saved).items()}
    keys = [_allowed_key(override, saved, config) for override in overrides if override not in same]
    if "paths.data" in keys and "root" in config["data"]:
        keys.append("data.root")
    for key in sorted({*keys, *COMMAND_KEYS}, key=lambda key: key.count(".")):  # a node comes before its keys
        value = _chosen_trainer(saved, config) if key == "trainer" else value_at(config, key)
        merged = with_values(merged, {key: value})
    return merged


def _read_names(folder: Path, saved: Mapping[str, Any]) -> dict[str, Any]:
    """The choices of a saved run, by group. Raises RunFolderError if its configuration has none."""
    names = saved.get("names")
    if not isinstance(names, dict):
        raise RunFolderError(f"{folder / CONFIG} is not the configuration of a run: it has no names")
    return names


def list_differences(saved: Mapping[str, Any], config: Mapping[str, Any], node: str | None = None) -> list[str]:
    """The keys in which two configurations, or a node of both, differ; options that cannot change a result may."""
    ours, theirs = _keep_decisive(saved), _keep_decisive(config)
    if node is not None:
        ours, theirs = (one[node] if isinstance(one.get(node), dict) else {} for one in (ours, theirs))
    return sorted(key for key in {*ours, *theirs} if ours.get(key) != theirs.get(key))


def may_change(override: str) -> bool:
    """Whether an override cannot change the result of a run, be it new or resumed."""
    key = override_key(override)
    is_free = any(key == free or key.startswith(f"{free}.") for free in FREE_OPTIONS)
    return is_free or key in (*COMMAND_KEYS, "hydra.searchpath")


def _keep_decisive(node: Mapping[str, Any], place: str = "") -> dict[str, Any]:
    """The parts of a configuration that can change a result."""
    return {
        key: _keep_decisive(value, f"{place}{key}.") if isinstance(value, Mapping) else value
        for key, value in node.items()
        if not may_change(f"{place}{key}")
    }


def _chosen_trainer(saved: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """Where and how the chosen trainer computes, with the precision and the batches that the saved one had."""

    def is_free(key: str) -> bool:
        return may_change(f"trainer.{key}") or f"trainer.{key}" in PROCESS_OPTIONS

    old, new = saved.get("trainer"), config["trainer"]
    kept = {key: value for key, value in old.items() if not is_free(key)} if isinstance(old, Mapping) else {}
    return kept | {key: value for key, value in new.items() if is_free(key)}


def _allowed_key(override: str, saved: Mapping[str, Any], config: Mapping[str, Any]) -> str:
    """The key of an override. Raises ConfigError if it could change the result of the saved run."""
    key = override_key(override)
    if key == "callbacks" and (others := list_differences(saved, config, "callbacks")):
        raise ConfigError(
            f"{override}: the run has other callbacks ({', '.join(others)}); leave it out, or start a new run"
        )
    is_same = (value := value_at(saved, key)) is not None and value == value_at(config, key)
    if not (may_change(override) or key in (*CHOSEN_NODES, *PROCESS_OPTIONS) or is_same):
        allowed = ", ".join(["mode", *CHOSEN_NODES, *FREE_OPTIONS, *PROCESS_OPTIONS])
        raise ConfigError(f"{override}: a resumed run keeps its configuration, except {allowed}; start a new run")
    return key
