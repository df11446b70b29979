"""Checks the node `hydra`: it can name callbacks, plugins and log handlers, which are code; and folders."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from sliceformer_lab.config.compose import no_such_option, option_names
from sliceformer_lab.errors import ConfigError

PLUGINS = ("hydra._internal.core_plugins.", "hydra_plugins.")  # installed; Hydra refuses all others too
LOG_NODES = ("job_logging", "hydra_logging")
LOG_VALUES = (  # of Hydra's own options for logs
    *("logging.StreamHandler", "logging.FileHandler", "ext://sys.stdout", "ext://sys.stderr"),
    "${hydra.runtime.output_dir}/${hydra.job.name}.log",
)


@contextmanager
def checked_hydra_node() -> Iterator[None]:
    """While it is open, Hydra composes no configuration whose `hydra` node names code that is not ours.

    Hydra calls what the node names before a job starts, so a file of options could run anything with it.
    """
    load = ConfigLoaderImpl.load_configuration

    def load_checked(
        self: ConfigLoaderImpl,
        config_name: str | None,
        overrides: list[str],
        run_mode: RunMode,
        from_shell: bool = True,
        validate_sweep_overrides: bool = True,
    ) -> DictConfig:
        config = load(self, config_name, overrides, run_mode, from_shell, validate_sweep_overrides)
        check_hydra_node(OmegaConf.to_container(config.hydra, resolve=False))
        return config

    ConfigLoaderImpl.load_configuration = load_checked  # type: ignore[method-assign]
    try:
        yield
    finally:
        ConfigLoaderImpl.load_configuration = load  # type: ignore[method-assign]


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
