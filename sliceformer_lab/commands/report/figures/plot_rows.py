"""The figures of a table, and the rows that they show, each with one colour, marker and dash in all figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from sliceformer_lab.commands.compare.row_looks import assign_looks, name_in_figures
from sliceformer_lab.commands.report.lines import Line
from sliceformer_lab.commands.report.table_cells import Section
from sliceformer_lab.measures.drawing import Chart, Look
from sliceformer_lab.measures.line_panels import ROW
from sliceformer_lab.runs.collect import RunRecord
from sliceformer_lab.runs.controls import is_control

MAX_PLOT_ROWS = 12  # more cannot be distinguished


@dataclass(frozen=True, kw_only=True)
class PageFigure(Chart):
    """A figure of the report's page. Its name, unique in a report, is its anchor too."""

    title: str
    caption: str  # what is plotted, over how many runs, and its limits
    alt: str  # text alternative: the main numbers
    table: str = ""  # the title of its table


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
    main_rows: tuple[PlotRow, ...]  # at most MAX_PLOT_ROWS of `rows`

    def looks(self, table: pd.DataFrame) -> dict[str, Look]:
        """The looks of the main rows that occur in the column ROW of `table`."""
        names = set(table[ROW])
        return {row.name: row.look for row in self.main_rows if row.name in names}

    def omission(self, rows: Sequence[PlotRow]) -> str:
        """A sentence on the rows that a figure leaves out; '' if it shows all."""
        if len(rows) == len(self.rows):
            return ""
        others = "those farthest from chance" if rows[0].line.chance is not None else "the first ones of the table"
        return f" {len(rows)} of {len(self.rows)} rows are shown: the controls, and {others}."


def plot_tables(sections: Sequence[Section]) -> list[PlotTable]:
    """Each table as its figures show it."""
    looks = assign_looks([table for table, _ in sections])
    found = []
    for number, (table, lines) in enumerate(sections, start=1):
        rows = tuple(PlotRow(name, line, looks[name]) for line in lines for name in [name_in_figures(line.row)])
        ended = tuple(row for row in rows if row.runs)
        suffix = f"_{number}" if len(sections) > 1 else ""
        found.append(PlotTable(suffix, table.title, table.metric, ended, tuple(select_rows(ended, MAX_PLOT_ROWS))))
    return found


def select_rows(rows: Sequence[PlotRow], most: int) -> list[PlotRow]:
    """At most `most` rows in their order: the controls, then those farthest from chance, if that is known."""

    def rank(row: PlotRow) -> tuple[bool, float]:
        chance, mean = row.line.chance, row.line.mean
        far = abs(mean - chance) if mean is not None and chance is not None else 0.0
        return (not is_control(row.line.row.attention), -far)

    names = {row.name for row in sorted(rows, key=rank)[:most]}
    return [row for row in rows if row.name in names]
