"""The layout of --help, and the comments of conf/ that it shows."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from sliceformer_lab.config.compose import CONF_DIR, option_file, option_names

PROGRAM = "sliceformer-lab"

Sections = Mapping[str, Mapping[str, str]]  # title -> left column -> right column


def page(summary: str, usage: str, sections: Sections) -> str:
    """The help of a command: its summary, its usage, and titled lists in two columns."""
    lines = [summary, "", f"usage: {usage}"]
    for title, rows in sections.items():
        width = max(map(len, rows)) + 2
        lines += ["", title, *(f"  {left:<{width}}{right}" for left, right in rows.items())]
    return "\n".join(lines)


def root_options(config_name: str) -> dict[str, str]:
    """The lines `key: default # comment` at the root of conf/`config_name`.yaml: key and default -> comment."""
    lines = (CONF_DIR / f"{config_name}.yaml").read_text(encoding="utf-8").splitlines()
    return dict(line.partition(" # ")[::2] for line in lines if line and line[0].isalpha() and " # " in line)


def first_comments(group: str) -> dict[str, str]:
    """The options of a group, each with the first comment of its file."""
    return {name: _first_comment(option_file(group, name)) for name in option_names(group)}


def _first_comment(file: Path) -> str:
    lines = file.read_text(encoding="utf-8").splitlines()
    return next((line[2:] for line in lines if line.startswith("# ") and not line.startswith("# @")), "")
