"""The rows that the figures of a table show, each with one colour, marker and dash in all figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from sliceformer_lab.commands.report.figures.figure import ROW, Look
from sliceformer_lab.commands.report.lines import Line
from sliceformer_lab.commands.report.table_cells import Section
from sliceformer_lab.measures.plots import COLOURS
from sliceformer_lab.runs.collect import RunRecord
from sliceformer_lab.runs.controls import is_control

MOST_ROWS = 12  # more cannot be distinguished
ATTENTION_COLOURS = COLOURS[:-1]  # without black, which is invisible in dark mode
CONTROL_COLOURS = ("#767676", "#A0A0A0")
SHAPES = ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross")
WHOLE, LONG, DOTS = (1, 0), (9, 3), (2, 2)


@dataclass(frozen=True)
class PlotRow:
    """A row of a table with its name and look in figures."""

    name: str
    line: Line
    look: Look

    @property
    def runs(self) -> list[RunRecord]:
        """The successful runs, which the table's mean is over."""
        return [run for run in self.line.row.runs if run.status == "ok"]


@dataclass(frozen=True)
class PlotTable:
    """A table as its figures show it."""

    suffix: str  # of the figures' names; '' in a report with one table
    title: str
    metric: str
    rows: tuple[PlotRow, ...]  # those with a successful run, in the order of the table
    main_rows: tuple[PlotRow, ...]  # at most MOST_ROWS of `rows`

    def looks(self, table: pd.DataFrame) -> dict[str, Look]:
        """The looks of the main rows that occur in the column ROW of `table`."""
        names = set(table[ROW])
        return {row.name: row.look for row in self.main_rows if row.name in names}

    def omission(self, rows: Sequence[PlotRow]) -> str:
        """A sentence on the rows that a figure leaves out; '' if it shows all."""
        if len(rows) == len(self.rows):
            return ""
        return f" {len(rows)} of {len(self.rows)} rows are shown: the controls, and those farthest from chance."


def plot_tables(sections: Sequence[Section]) -> list[PlotTable]:
    """Each table as its figures show it."""
    names = [[_name(line) for line in lines] for _, lines in sections]
    looks = _assign_looks([[(_name(line), is_control(line.row.attention)) for line in lines] for _, lines in sections])
    found = []
    for number, ((table, lines), shown) in enumerate(zip(sections, names, strict=True), start=1):
        rows = tuple(PlotRow(name, line, looks[name]) for name, line in zip(shown, lines, strict=True))
        ended = tuple(row for row in rows if row.runs)
        suffix = f"_{number}" if len(sections) > 1 else ""
        found.append(PlotTable(suffix, table.title, table.metric, ended, tuple(select_rows(ended, MOST_ROWS))))
    return found


def _name(line: Line) -> str:
    words = " ".join([line.row.label, *map(str, line.row.factors)])
    return f"{words} (control)" if is_control(line.row.attention) else words


def _assign_looks(tables: Sequence[Sequence[tuple[str, bool]]]) -> Mapping[str, Look]:
    """A look for each name, in the order of the names: the first that no row of the same tables has."""
    controls = {name: control for table in tables for name, control in table}
    places: dict[str, int] = {}
    for name, control in sorted(controls.items()):
        neighbours = {other for table in tables if name in dict(table) for other, _ in table}
        taken = {places[other] for other in neighbours if other in places and controls[other] == control}
        places[name] = next(place for place in range(len(taken) + 1) if place not in taken)
    return {name: _look_at(place, controls[name]) for name, place in places.items()}


def _look_at(place: int, control: bool) -> Look:
    colours = CONTROL_COLOURS if control else ATTENTION_COLOURS
    turn, colour = divmod(place, len(colours))
    shape = SHAPES[-1 - place % len(SHAPES)] if control else SHAPES[(place + turn) % len(SHAPES)]
    return Look(colours[colour], shape, DOTS if control else (WHOLE, LONG)[turn % 2])


def select_rows(rows: Sequence[PlotRow], most: int) -> list[PlotRow]:
    """At most `most` rows in their order: the controls, then those farthest from chance."""

    def rank(row: PlotRow) -> tuple[bool, float]:
        chance, mean = row.line.row.runs[0].number("chance"), row.line.mean
        far = abs(mean - chance) if mean is not None and chance is not None else 0.0
        return (not is_control(row.line.row.attention), -far)

    names = {row.name for row in sorted(rows, key=rank)[:most]}
    return [row for row in rows if row.name in names]
