"""Checks the node `hydra`: it can name callbacks, plugins and log handlers, which are code; and folders."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.types import RunMode

from sliceformer_lab.config.compose import CONF_DIR, compose_root, no_such_option, option_names
from sliceformer_lab.config.sweep_size import split_jobs
from sliceformer_lab.errors import ConfigError

PLUGINS = ("hydra._internal.core_plugins.", "hydra_plugins.")  # installed; Hydra refuses all others too
LOG_NODES = ("job_logging", "hydra_logging")
LOG_VALUES = (  # of Hydra's own options for logs
    *("logging.StreamHandler", "logging.FileHandler", "ext://sys.stdout", "ext://sys.stderr"),
    "${hydra.runtime.output_dir}/${hydra.job.name}.log",
)


def check_hydra_nodes(
    words: Sequence[str], config_name: str, folder: Path = CONF_DIR, *, multirun: bool, jobs_known: bool = False
) -> None:
    """Checks the node `hydra` of every configuration that Hydra's application would compose from these words.

    Hydra calls what the node names before a job starts, so a file of options could run anything with it. The check
    composes the configurations itself, before the application starts. With `jobs_known` those of the jobs of a
    multirun were checked when it was planned. Raises ConfigError and Hydra's errors.
    """
    parser = OverridesParser.create()
    parsed = parser.parse_overrides(list(words))
    common = [str(override.input_line) for override in parsed if not override.is_sweep_override()]
    hydra = compose_root(common, config_name, folder)["hydra"]
    check_hydra_node(hydra)
    if jobs_known or not (multirun or hydra["mode"] == RunMode.MULTIRUN):
        return
    given = {override.key_or_group for override in parsed}
    swept = [f"{key}={value}" for key, value in (hydra["sweeper"].get("params") or {}).items() if key not in given]
    for job in split_jobs([*parser.parse_overrides(swept), *parsed]):
        check_hydra_node(compose_root(job, config_name, folder)["hydra"])


def check_hydra_node(hydra: Any) -> None:
    """Raises ConfigError with every fault of a `hydra` node: code, variables, no folder, a choice that is none."""
    faults = [*_choice_faults(hydra["runtime"]["choices"]), *_folder_faults(hydra)]
    faults += [*_callback_faults(hydra.get("callbacks")), *_plugin_faults(hydra)]
    for name in LOG_NODES:
        faults += _log_faults(hydra.get(name), f"hydra.{name}")
    for key in ("env_set", "env_copy"):
        if hydra["job"][key]:
            faults.append(f"hydra.job.{key}: a configuration sets no environment variables; set them in the shell")
    if faults:
        raise ConfigError("; ".join(faults))


def _choice_faults(choices: dict[str, Any]) -> Iterator[str]:
    """Files whose names begin with _ are parts of options."""
    for group, name in choices.items():
        if any(part.startswith("_") for part in str(name).split("/")):
            yield no_such_option(group, str(name), option_names(group))


def _folder_faults(hydra: dict[str, Any]) -> Iterator[str]:
    for mode in ("run", "sweep"):
        if not str(hydra[mode]["dir"]).strip():
            yield f"hydra.{mode}.dir: given {hydra[mode]['dir']!r}, should be a folder"


def _callback_faults(callbacks: Any) -> Iterator[str]:
    for name in callbacks or ():
        yield f"hydra.callbacks.{name}: a configuration gives Hydra no callbacks"


def _plugin_faults(hydra: dict[str, Any]) -> Iterator[str]:
    for name in ("launcher", "sweeper"):
        for place, key, value in _entries(hydra.get(name), f"hydra.{name}"):
            if key == "_target_" and (place != f"hydra.{name}" or not str(value).startswith(PLUGINS)):
                yield f"{place}._target_: {value} is not a plugin of Hydra"


def _log_faults(node: Any, where: str) -> Iterator[str]:
    for place, key, value in _entries(node, where):
        text = str(value)
        known = text in LOG_VALUES
        if key in ("()", ".") or (not known and (key == "class" or "://" in text or "${" in text)):
            yield f"{place}.{key}: {text} is not one of {', '.join(LOG_VALUES)}"


def _entries(node: Any, place: str) -> Iterator[tuple[str, str, Any]]:
    """Every entry in a node that is no mapping or list itself: its mapping's place, its key, its value."""
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in items:
        if isinstance(value, dict | list):
            if key in ("()", ".", "_target_"):
                yield place, str(key), value
            yield from _entries(value, f"{place}.{key}")
        else:
            yield place, str(key), value
