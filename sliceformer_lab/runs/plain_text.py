"""Texts from files, escaped for terminals, CSV, Markdown and LaTeX: whoever wrote a file chooses only its words."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

LATEX = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "≠": r"$\neq$"}
LATEX |= {"×": r"$\times$", "±": r"$\pm$"} | {sign: f"\\{sign}" for sign in "&%$#_{}"}
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")  # begin a cell that a spreadsheet executes


def show_control_characters(text: str) -> str:
    r"""A text whose control characters can be read, such as \x1b; tabs and line breaks stay."""
    return "".join(c if c.isprintable() or c in "\t\n" else c.encode("unicode_escape").decode() for c in text)


def one_line(text: object) -> str:
    """A text as one line without control characters."""
    return show_control_characters(re.sub(r"\s*[^\S ]\s*", " ", str(text).strip()))


def in_markdown(text: str) -> str:
    """A text as one line of Markdown without code, links, HTML and further cells."""
    return re.sub(r"[\\`<|]|(?<=\])(?=[(\[])|^(?=[#>])", lambda found: f"\\{found[0]}", one_line(text))


def markdown_table(head: Sequence[str], *rows: Sequence[str]) -> str:
    """A table of cells that are Markdown."""
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows))


def in_latex(text: str) -> str:
    """A text as one line of LaTeX without commands."""
    return "".join(LATEX.get(letter, letter) for letter in one_line(text))


def format_clock(seconds: float) -> str:
    """A time as 4:05 min or 1:30 h."""
    whole = int(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02d} h" if whole >= 3600 else f"{whole // 60}:{whole % 60:02d} min"


def counted(number: int, noun: str) -> str:
    """A number with its noun, as 1 layer or 1,024 layers."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def format_range(numbers: Iterable[int]) -> str:
    """The smallest and the largest number, as 5 to 1,024; one of them if they are equal."""
    known = list(numbers)
    return " to ".join(f"{number:,}" for number in sorted({min(known), max(known)}))


def csv_cell(value: object) -> object:
    """A value of a CSV file; a text that a spreadsheet would execute as a formula begins with an apostrophe."""
    if not isinstance(value, str):
        return value
    return show_control_characters(f"'{value}" if value.startswith(FORMULA) and not is_number(value) else value)


class PlainConsole(Console):
    """Prints texts as they are: brackets are no markup, control characters are visible, and no line is wrapped."""

    def __init__(self, stderr: bool = False) -> None:
        super().__init__(stderr=stderr, highlight=False, soft_wrap=True)

    def render_str(self, text: str, **options: Any) -> Text:
        """The text, as rich asks for the texts of tables and of `print`."""
        return super().render_str(show_control_characters(text), **options | {"markup": False, "emoji": False})


def is_number(text: str) -> bool:
    """Whether a text reads as a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def format_score(score: float | None, digits: int = 4) -> str:
    """A score with so many digits; `undefined` for NaN, which JSON keeps as null, as of one class alone."""
    return "undefined" if score is None or math.isnan(score) else f"{score:.{digits}f}"
