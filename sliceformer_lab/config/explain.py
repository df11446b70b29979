"""Turns Hydra's and OmegaConf's errors into one sentence: where, what was given, what would work."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf.errors import OmegaConfBaseException

from sliceformer_lab.config.compose import compose_job, no_such_option, option_names, preset_root, written_option
from sliceformer_lab.config.schema import ConfigError, nearest
from sliceformer_lab.config.sweep_size import split_jobs
from sliceformer_lab.errors import LabError

NOT_UNDERSTOOD = (  # the shell takes one kind of quotes away
    "not understood; write KEY=VALUE, and a value with a letter such as ö or a sign such as ~ in two kinds of quotes, "
    """'KEY="VALUE"'"""
)
MAX_NAMED_OPTIONS = 3  # of a group that have a key which the chosen one lacks


def job_config(words: Sequence[str]) -> dict[str, Any]:
    """The composed configuration of a run with these overrides. Raises ConfigError."""
    try:
        return compose_job(words)
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError(explain(error, words)) from error


def parse_word(word: str) -> Override:
    """A word of a command line as Hydra reads it. Raises ConfigError."""
    try:
        return OverridesParser.create().parse_override(word)
    except HydraException as error:
        fault = str(error).splitlines()[0]
        raise ConfigError(f"{word}: {fault if 'while evaluating' in fault else NOT_UNDERSTOOD}") from error


def explain(error: Exception, overrides: Sequence[str], config_name: str = "config") -> str:
    """The sentence for an error raised while composing `overrides`."""
    ours = _lab_error(error)
    if ours is not None:
        return str(ours)
    if isinstance(error, MissingConfigException):
        return _missing_option(error, overrides)
    if missing := re.search(r"Missing mandatory value: (\S+)", str(error)):
        return f"{missing[1]}: a value is needed; write {missing[1]}=..."
    if isinstance(error, OverrideParseException):
        return f"{error.override}: {NOT_UNDERSTOOD}"
    if swept := re.match("(?:Ambiguous value for argument|Sweep parameters) '(.*)'", str(error)):
        return f"{swept[1]}: several values; add -m to run each of them, or write [...] for a list"
    try:
        jobs = split_jobs(OverridesParser.create().parse_overrides(list(overrides)))
        faults = [fault for job in jobs for fault in _list_faults(job, config_name)]
    except (HydraException, ValueError, ConfigError):
        faults = []
    return "; ".join(dict.fromkeys(faults)) or str(error).splitlines()[0]


def _lab_error(error: BaseException | None) -> LabError | None:
    """The LabError that Hydra or OmegaConf has wrapped, if any."""
    while error is not None and not isinstance(error, LabError):
        error = error.__cause__ or error.__context__
    return error


def _missing_option(error: MissingConfigException, overrides: Sequence[str]) -> str:
    missing = str(error.missing_cfg_file)
    named = [override.partition("=")[0].lstrip("+") for override in overrides]
    group = next((name for name in named if missing.startswith(f"{name}/")), missing.rpartition("/")[0])
    known = {*option_names(group), *(error.options or [])}
    return no_such_option(group, missing.removeprefix(f"{group}/"), sorted(known))


def _list_faults(overrides: list[str], config_name: str) -> list[str]:
    """A sentence for each wrong override of one job; its group options all exist."""
    parsed = OverridesParser.create().parse_overrides(overrides)
    groups = list(preset_root(config_name=config_name)["hydra"]["runtime"]["choices"])
    chosen = [o for o in parsed if o.key_or_group in groups]
    faults = [fault for o in chosen if (fault := _choice_fault(o))]
    root = preset_root(*(str(o.input_line) for o in chosen if not _choice_fault(o)), config_name=config_name)
    return faults + [fault for o in parsed if o not in chosen and (fault := _key_fault(o, root, groups))]


def _choice_fault(override: Override) -> str | None:
    if override.key_or_group.startswith("hydra"):
        return None
    if override.is_add():
        return f"{override.input_line}: {override.key_or_group} has a choice already; leave out the +"
    if not override.is_delete() and not isinstance(override.value(), str):
        return f"{override.input_line}: name one option of {override.key_or_group}"
    return None


def _key_fault(override: Override, root: dict[str, Any], groups: list[str]) -> str | None:
    key = override.key_or_group
    parent, missing, siblings = _search_key(key, root, groups)
    if override.is_add():
        return None if missing else f"{override.input_line}: there is such a key already; leave out the +"
    if not missing or override.is_force_add():
        return None
    where = f" in {parent}" if parent else ""
    if elsewhere := _keys_named(missing, root):
        return f"{key}: there is no such key{where}; did you mean {' or '.join(elsewhere)}?"
    having = (
        [name for name in option_names(parent) if missing in written_option(parent, name)] if parent in groups else []
    )
    if 0 < len(having) <= MAX_NAMED_OPTIONS:
        return f"{key}: there is no such key{where}, but {parent}={' and '.join(having)} has it"
    return f"{key}: there is no such key{where}{nearest(missing, siblings)}"


def _keys_named(name: str, root: dict[str, Any]) -> list[str]:
    """The dotted keys of the option `name` in any group; max_epochs and train_epochs find `epochs` too."""
    keys = [f"{group}.{key}" for group, node in root.items() if isinstance(node, dict) for key in node]
    own = [key for key in keys if key.endswith(f".{name}")]
    return own or [key for key in keys if f"_{name}".endswith(f"_{key.partition('.')[2]}")]


def _search_key(key: str, root: dict[str, Any], groups: list[str]) -> tuple[str, str, list[str]]:
    """How far a dotted key leads: its last existing parent, the first missing part, and the keys of that parent.

    The missing part is '' if the whole key exists.
    """
    node: Any = root
    parts = key.split(".")
    for depth, part in enumerate(parts):
        if not isinstance(node, dict) or part not in node:
            siblings = list(node) if isinstance(node, dict) else []
            if depth == 0:
                siblings += [group for group in groups if not group.startswith("hydra/")]
            return ".".join(parts[:depth]), part, sorted({*siblings} - {"_target_", "hydra"})
        node = node[part]
    return key, "", []
