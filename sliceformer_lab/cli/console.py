"""The console that commands print tables to."""

from __future__ import annotations

from rich.console import Console


def table_console(width: int) -> Console:
    """A console on stdout; `width` characters wide if stdout is no terminal."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = width
    return console
