"""A printed table is no wider than the terminal, and no cell is cut."""

from __future__ import annotations

import re

import pytest
from rich.table import Table

from sliceformer_lab.runs.printed_table import print_table

STYLE = re.compile(r"\x1b\[[0-9;]*m")
HEAD = ("attention", "weights", *(f"measure {n}\nmean removed" for n in range(9)), "verdict")
ROWS = [
    [name, "init", *(f"{n}.{n}{len(name)}7 ± 0.0{n}" for n in range(9)), "not distinguishable (two of three pairs)"]
    for name in ("csp", "random_permutation (control)")
]


def print_lines(width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What a terminal of `width` characters shows of the table; 0 is a pipe."""
    if width:
        for name, value in {"FORCE_COLOR": "1", "TERM": "xterm", "COLUMNS": str(width)}.items():
            monkeypatch.setenv(name, value)
    table = Table(*HEAD, title="title")
    for row in ROWS:
        table.add_row(*row)
    print_table(table, num_names=2)
    return STYLE.sub("", capsys.readouterr().out).splitlines()


@pytest.mark.parametrize("width", [48, 80, 120, 300, 0])
def test_every_word_of_every_cell_is_printed_within_the_width(
    width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = print_lines(width, capsys, monkeypatch)
    words = set(re.split(r"[\s│┃]+", "\n".join(lines)))
    assert {word for row in (HEAD, *ROWS) for cell in row for word in cell.split()} <= words
    assert max(map(len, lines)) <= (width or 200)
    assert (sum(line.startswith("┏") for line in lines) == 1) is (width in (300, 0)), "a table that fits is one table"


def test_each_part_of_a_wide_table_begins_with_the_names(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = print_lines(80, capsys, monkeypatch)
    parts = sum(line.startswith("┏") for line in lines)
    assert parts > 1 and sum(line.startswith("│ csp ") for line in lines) == parts
    assert lines[:2] == ["", "title"] and lines.count("title") == 1


def test_a_word_that_is_wider_than_the_terminal_is_broken(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"FORCE_COLOR": "1", "TERM": "xterm", "COLUMNS": "40"}.items():
        monkeypatch.setenv(name, value)
    table = Table("job", "error")
    table.add_row("a" * 70, "b" * 90)
    print_table(table)
    _, *lines = STYLE.sub("", capsys.readouterr().out).partition("┡")[2].splitlines()
    assert ("".join(lines).count("a"), "".join(lines).count("b")) == (70, 90)
    assert max(map(len, lines)) <= 40
