"""Where commands print errors and help."""

from __future__ import annotations

import os
import sys

from sliceformer_lab.cli.help import PROGRAM
from sliceformer_lab.errors import Ending
from sliceformer_lab.runs.plain_text import one_line


def print_error(error: Ending) -> int:
    """Prints the sentence of an error to stderr and returns its exit code."""
    print(f"{PROGRAM}: {one_line(error)}", file=sys.stderr, flush=True)  # noqa: T201
    return error.exit_code


def print_text(text: str) -> None:
    """Prints help or options. What reads them, such as `head`, may have enough before their end."""
    try:
        print(text, flush=True)  # noqa: T201
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else Python's own flush at exit fails
