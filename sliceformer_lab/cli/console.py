"""Where commands print tables and errors."""

from __future__ import annotations

import sys

from rich.console import Console

from sliceformer_lab.cli.help import PROGRAM
from sliceformer_lab.errors import Ending
from sliceformer_lab.runs.plain_text import PlainConsole, one_line


def table_console(width: int) -> Console:
    """A console on stdout; `width` characters wide if stdout is no terminal."""
    console = PlainConsole(highlight=False)
    if not console.is_terminal:
        console.width = width
    return console


def print_error(error: Ending) -> int:
    """Prints the sentence of an error to stderr and returns its exit code."""
    print(f"{PROGRAM}: {one_line(error)}", file=sys.stderr, flush=True)  # noqa: T201
    return error.exit_code
