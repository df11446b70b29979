"""Composes configurations: the whole one of a job, or one option of a group for hybrids, notebooks and tests.

Nothing here imports torch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf

from sliceformer_lab import conf
from sliceformer_lab.config.schema import ConfigError, nearest

CONF_DIR = Path(conf.__file__).parent
MANY = 100  # options of a group; more are too many to list in a message


def option_names(group: str) -> list[str]:
    """The options of a group such as 'attention', sorted; those in a sub-folder as folder/option.

    A folder whose name begins with _ holds parts of options, which cannot be chosen by themselves.
    """
    root = CONF_DIR / group
    names = sorted(file.relative_to(root).with_suffix("").as_posix() for file in root.rglob("*.yaml"))
    return [name for name in names if not name.startswith("_")]


def no_such_option(group: str, name: str, names: list[str]) -> str:
    """The message for an option that is not among `names`."""
    hint = nearest(name, names)
    if len(names) > MANY:
        return f"{group}={name}: there is no such option{hint if 'did you mean' in hint else '; --help lists them'}"
    listed = "" if hint.startswith("; there are") or not names else f" (there are {', '.join(names)})"
    return f"{group}={name}: there is no such option{hint}{listed}"


def load_option(group: str, name: str, overrides: Sequence[str] = ()) -> dict[str, Any]:
    """The node of one option, e.g. ('attention', 'csp', ['group_size=4']), as plain values.

    Overrides are relative to the node, values in Hydra's grammar. A key that the option lacks is an error only when the
    node is checked (`sliceformer_lab.config.schema.check_node`). Works inside a running Hydra application.
    Raises ConfigError for an unknown option and for an override that is not key=value.
    """
    return deepcopy(_composed(group, name, tuple(overrides)))


@cache  # composing takes as long as building a small model
def _composed(group: str, name: str, overrides: tuple[str, ...]) -> dict[str, Any]:
    names = option_names(group)
    if name not in names:
        raise ConfigError(no_such_option(group, name, names))
    try:
        with _own_hydra():
            config = compose(overrides=[f"+{group}={name}", *(f"++{group}.{override}" for override in overrides)])
    except HydraException as error:
        raise ConfigError(f"{group}={name}: {str(error).splitlines()[0]}") from error
    return plain_values(config[group])


def compose_root(overrides: Sequence[str], config_name: str = "config") -> dict[str, Any]:
    """The whole configuration of one job, Hydra's own node included, interpolations unresolved.

    Raises Hydra's errors.
    """
    with _own_hydra():
        return plain_values(compose(config_name, overrides=list(overrides), return_hydra_config=True), resolve=False)


@contextmanager
def _own_hydra() -> Iterator[None]:
    """A Hydra on our configuration folder; the Hydra of a running application is restored afterwards."""
    instance = GlobalHydra.instance()
    running = instance.hydra
    instance.clear()
    try:
        with initialize_config_dir(str(CONF_DIR), version_base="1.3"):
            yield
    finally:
        GlobalHydra.instance().hydra = running


def plain_values(node: DictConfig, resolve: bool = True) -> dict[str, Any]:
    """A node as dicts, lists and scalars. Raises OmegaConf's errors for values that are missing or unresolvable."""
    plain = OmegaConf.to_container(node, resolve=resolve, throw_on_missing=resolve)
    if not isinstance(plain, dict):
        raise ConfigError(f"expected a mapping of options, got {plain!r}")
    return {str(key): value for key, value in plain.items()}
