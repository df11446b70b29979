"""Control operators: attentions that serve only as a comparison for others."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from sliceformer_lab.config.compose import conf_folders, option_names, written_option
from sliceformer_lab.config.schema import ConfigError, locate


def controls() -> tuple[str, ...]:
    """The options of the group attention whose class names "control" as the first word of its source."""
    return _list_controls(conf_folders())


def is_control(attention: str) -> bool:
    """Whether an attention is a control; False for names that are no options."""
    return attention in controls()


@cache
def _list_controls(folders: tuple[Path, ...]) -> tuple[str, ...]:
    del folders  # the names depend on them
    return tuple(name for name in option_names("attention") if _read_source(name).startswith("control"))


def _read_source(name: str) -> str:
    target = written_option("attention", name).get("_target_")  # None for a preset, which inherits it from `defaults`
    if target is None:
        return ""
    try:
        return str(getattr(locate(str(target)), "source", ""))
    except ConfigError:  # an option of the user, whose code this command does not allow
        return ""
