"""The layout of --help, and the comments of conf/ that it shows."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from textwrap import wrap

from sliceformer_lab.config.compose import CONF_DIR, option_file, option_names

PROGRAM = "sliceformer-lab"
WIDTH = 100  # characters of a line, unless a command or a default is longer; fewer on a narrow terminal
MIN_WIDTH = 60
WIDEST_LEFT = 34  # of the left column; a longer text, such as a command, has its right one below, indented by INDENT
INDENT = 6

Sections = Mapping[str, Mapping[str, str]]  # title -> left column -> right column


def page(summary: str, usage: str, sections: Sections) -> str:
    """The help of a command: its summary, its usage, and titled lists in two columns."""
    lines = [summary, "", f"usage: {usage}"]
    for title, rows in sections.items():
        column = max((len(left) for left in rows if len(left) <= WIDEST_LEFT), default=0) + 2
        lines += ["", title, *(line for row in rows.items() for line in _format_row(*row, column))]
    return "\n".join(lines)


def _format_row(left: str, right: str, column: int) -> list[str]:
    """The lines of a row. Commands and defaults stay whole; a right text that has no place beside one is below it."""
    is_below = len(left) > column - 2
    indent = " " * (INDENT if is_below else column + 2)
    width = max(MIN_WIDTH, min(WIDTH, shutil.get_terminal_size((WIDTH, 24)).columns))
    texts = wrap(right, width, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)
    if is_below:
        return [f"  {left}", *texts]
    first = texts[0].strip() if texts else ""
    return [f"  {left:<{column}}{first}".rstrip(), *texts[1:]]


def root_options(config_name: str) -> dict[str, str]:
    """The lines `key: default # comment` at the root of conf/`config_name`.yaml: key and default -> comment.

    Of a default that a resolver computes, only the name of the resolver is given: `${comparison_folder:...}`.
    """
    lines = (CONF_DIR / f"{config_name}.yaml").read_text(encoding="utf-8").splitlines()
    named = [re.sub(r"(\$\{\w+:).*\}", r"\1...}", line) for line in lines]
    return dict(line.partition(" # ")[::2] for line in named if line and line[0].isalpha() and " # " in line)


def first_comments(group: str) -> dict[str, str]:
    """The options of a group, each with the first comment of its file."""
    return {name: _first_comment(option_file(group, name)) for name in option_names(group)}


def _first_comment(file: Path) -> str:
    lines = file.read_text(encoding="utf-8").splitlines()
    return next((line[2:] for line in lines if line.startswith("# ") and not line.startswith("# @")), "")
