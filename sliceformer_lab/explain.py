"""Hydra's and OmegaConf's errors as one sentence: where, what was given, what would work."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from hydra.errors import MissingConfigException, OverrideParseException
from omegaconf import DictConfig, OmegaConf

from sliceformer_lab.compose import CONF_DIR, compose_root
from sliceformer_lab.config import nearest
from sliceformer_lab.errors import LabError


def explain(error: Exception, arguments: Sequence[str]) -> str:
    """The sentence for an error that composing the command line `arguments` raised."""
    for cause in _chain(error):
        if isinstance(cause, LabError):
            return str(cause)
    if isinstance(error, MissingConfigException):
        return _missing_option(error)
    if isinstance(error, OverrideParseException):
        return f"{error.override}: not understood; write KEY=VALUE, and quote values with spaces or brackets"
    key = _offending_key(error, arguments)
    if key is not None:
        return _unknown_key(key, arguments)
    return " ".join(str(error).split())


def _chain(error: BaseException | None) -> list[BaseException]:
    found = []
    while error is not None:
        found.append(error)
        error = error.__cause__ or error.__context__
    return found


def _missing_option(error: MissingConfigException) -> str:
    group, _, name = str(error.missing_cfg_file).rpartition("/")
    options = list(error.options or [])
    listed = ", ".join(sorted(options))
    hint = nearest(name, options).split("; there are")[0]
    return f"{group}={name}: there is no such option{hint}; there are {listed}"


def _offending_key(error: Exception, arguments: Sequence[str]) -> str | None:
    quoted = re.search(r"'([^']+)'", str(error))
    if quoted is None:
        return None
    name = quoted.group(1).lstrip("+~").split("=")[0].split("@")[0]
    keys = [argument.lstrip("+~").split("=")[0] for argument in arguments]
    return next((key for key in keys if key == name or key.endswith(name)), None)


def _unknown_key(key: str, arguments: Sequence[str]) -> str:
    parent, _, name = key.rpartition(".")
    chosen = [a for a in arguments if (CONF_DIR / a.split("=")[0]).is_dir() and "," not in a]
    root = compose_root(chosen)
    node: Any = OmegaConf.select(root, parent) if parent else root
    known = [str(k) for k in node] if isinstance(node, DictConfig) else []
    if not parent:
        known += [folder.name for folder in CONF_DIR.iterdir() if folder.is_dir()]
    where = f" in {parent}" if parent else ""
    names = sorted(set(known) - {"_target_", "__pycache__", "hydra"})
    return f"{key}: there is no such key{where}{nearest(name, names)}"
