"""Texts from run folders, escaped for the formats of a report: whoever wrote a run chooses no markup in its report."""

from __future__ import annotations

import re

LATEX = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "≠": r"$\neq$"}
LATEX |= {"×": r"$\times$", "±": r"$\pm$"} | {sign: f"\\{sign}" for sign in "&%$#_{}"}


def in_markdown(text: str) -> str:
    """A text as one line of Markdown without code, links, HTML and further cells."""
    return re.sub(r"[\\`<|]|(?<=\])(?=[(\[])|^(?=[#>])", lambda found: f"\\{found[0]}", _line(text))


def in_latex(text: str) -> str:
    """A text as one line of LaTeX without commands."""
    return "".join(LATEX.get(letter, letter) for letter in _line(text))


def _line(text: str) -> str:
    """A text without line breaks and control characters."""
    return "".join(letter for letter in " ".join(text.split()) if letter.isprintable())
