"""Tables on a terminal: no cell is cut, and a table that is too wide is printed in parts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from rich.cells import cell_len
from rich.table import Column, Table

from sliceformer_lab.runs.plain_text import PlainConsole

PIPE_CHARACTERS = 200  # of a line in files and pipes
MIN_CELL_CHARACTERS = 18  # of a cell before it is wrapped, if it has so many


def print_table(table: Table, num_names: int = 1) -> None:
    """Prints a table below its title.

    One that is wider than the terminal is printed in parts: each has the first `num_names` columns and some others.
    """
    console = PlainConsole()
    console.width = console.width if console.is_terminal else PIPE_CHARACTERS
    if table.title:
        console.print(f"\n{table.title}", style="bold")
    for chosen in _split_columns(table, num_names, console.width):
        console.print(_select_columns(table, chosen, console.width))


def print_tables(tables: Mapping[str, Sequence[Sequence[str]]], lines: Iterable[str]) -> None:
    """Prints tables by their titles, each a head and rows of Markdown whose bold is left out, and then lines."""
    for title, (head, *body) in tables.items():
        table = Table(*head, title=title)
        for row in body:
            table.add_row(*(cell.replace("**", "") for cell in row))
        print_table(table)
    for line in lines:
        PlainConsole().print(line)


def _split_columns(table: Table, num_names: int, width: int) -> Iterator[list[int]]:
    """The columns of each part, by their numbers."""
    widths = [_narrow_width(column) for column in table.columns]
    names = list(range(min(num_names, len(widths))))
    part = list(names)
    for number in range(len(names), len(widths)):
        if len(part) > len(names) and _table_width(widths[i] for i in [*part, number]) > width:
            yield part
            part = list(names)
        part.append(number)
    yield part


def _select_columns(table: Table, chosen: Sequence[int], width: int) -> Table:
    """A table of some columns. Those with the shortest lines have the width of their lines, if there is room."""
    columns = [table.columns[number] for number in chosen]
    full, widths = [_full_width(column) for column in columns], [_narrow_width(column) for column in columns]
    spare = width - _table_width(widths)
    for place in sorted(range(len(columns)), key=full.__getitem__):
        more = max(0, min(spare, full[place] - widths[place]))
        widths[place], spare = widths[place] + more, spare - more
    part = Table(show_header=table.show_header)
    for column, characters in zip(columns, widths, strict=True):  # rich breaks words that are wider than the terminal
        part.add_column(column.header, style=column.style, justify=column.justify, width=characters, overflow="fold")
    for row, *content in zip(table.rows, *(column.cells for column in columns), strict=True):
        part.add_row(*content, end_section=row.end_section)
    return part


def _table_width(widths: Iterable[int]) -> int:
    """The characters of a line: each cell has a space on both sides and a border on its right."""
    return sum(width + 3 for width in widths) + 1


def _full_width(column: Column) -> int:
    """The characters of its longest line."""
    return max(cell_len(line) for text in (column.header, *column.cells) for line in ["", *str(text).splitlines()])


def _narrow_width(column: Column) -> int:
    """The characters that it needs to break its lines at spaces only."""
    word = max(cell_len(word) for text in (column.header, *column.cells) for word in ["", *str(text).split()])
    line = max((cell_len(line) for text in column.cells for line in str(text).splitlines()), default=0)
    return max(word, min(line, MIN_CELL_CHARACTERS))
