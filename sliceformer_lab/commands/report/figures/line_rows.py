"""Which rows of a table its figures draw, and the look that a row has in all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sliceformer_lab.commands.report.figures.figure import Look
from sliceformer_lab.commands.report.lines import Line
from sliceformer_lab.commands.report.tables import Section
from sliceformer_lab.measures.plots import COLOURS
from sliceformer_lab.runs.collect import RunRecord
from sliceformer_lab.runs.controls import is_control

MOST_ROWS = 12  # that can be told apart
OF_ATTENTIONS = COLOURS[:-1]  # black is the page's own, or lost on it
OF_CONTROLS = ("#767676", "#A0A0A0")
SHAPES = ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross")
WHOLE, LONG, DOTS = (1, 0), (9, 3), (2, 2)


@dataclass(frozen=True)
class Drawn:
    """A row of a table, as figures draw it."""

    name: str
    line: Line
    look: Look

    @property
    def runs(self) -> list[RunRecord]:
        """Those that ended well, as the table's mean is of them."""
        return [run for run in self.line.row.runs if run.status == "ok"]


@dataclass(frozen=True)
class Subject:
    """What the figures of one table are about."""

    suffix: str  # of the figures' names; '' in a report of one table
    title: str
    metric: str
    rows: tuple[Drawn, ...]  # with a run that ended well, in the order of the table
    telling: tuple[Drawn, ...]  # at most MOST_ROWS of them

    def told(self, rows: Sequence[Drawn]) -> str:
        """How many rows a figure leaves out, and why; '' if none."""
        if len(rows) == len(self.rows):
            return ""
        return f" {len(rows)} of {len(self.rows)} rows are drawn: the controls and those farthest from chance."


def subjects(sections: Sequence[Section]) -> list[Subject]:
    """What there is to draw of each table."""
    names = [[_name(line) for line in lines] for _, lines in sections]
    looks = _looks([[(_name(line), is_control(line.row.attention)) for line in lines] for _, lines in sections])
    found = []
    for number, ((table, lines), shown) in enumerate(zip(sections, names, strict=True), start=1):
        rows = tuple(Drawn(name, line, looks[name]) for name, line in zip(shown, lines, strict=True))
        ended = tuple(row for row in rows if row.runs)
        suffix = f"_{number}" if len(sections) > 1 else ""
        found.append(Subject(suffix, table.title, table.metric, ended, tuple(chosen(ended, MOST_ROWS))))
    return found


def _name(line: Line) -> str:
    words = " ".join([line.row.label, *map(str, line.row.factors)])
    return f"{words} (control)" if is_control(line.row.attention) else words


def _looks(tables: Sequence[Sequence[tuple[str, bool]]]) -> Mapping[str, Look]:
    """A look for each name: the first that no row beside it has, in whatever table the two meet."""
    controls = {name: control for table in tables for name, control in table}
    places: dict[str, int] = {}
    for name, control in controls.items():
        beside = {other for table in tables if name in dict(table) for other, _ in table}
        taken = {places[other] for other in beside if other in places and controls[other] == control}
        places[name] = next(place for place in range(len(taken) + 1) if place not in taken)
    return {name: _look(place, controls[name]) for name, place in places.items()}


def _look(place: int, control: bool) -> Look:
    colours = OF_CONTROLS if control else OF_ATTENTIONS
    turn, colour = divmod(place, len(colours))
    shape = SHAPES[-1 - place % len(SHAPES)] if control else SHAPES[(place + turn) % len(SHAPES)]
    return Look(colours[colour], shape, DOTS if control else (WHOLE, LONG)[turn % 2])


def chosen(rows: Sequence[Drawn], most: int) -> list[Drawn]:
    """At most so many rows in their order: the controls, and of the others those that are farthest from chance."""

    def rank(row: Drawn) -> tuple[bool, float]:
        chance, mean = row.line.row.runs[0].number("chance"), row.line.mean
        far = abs(mean - chance) if mean is not None and chance is not None else 0.0
        return (not is_control(row.line.row.attention), -far)

    names = {row.name for row in sorted(rows, key=rank)[:most]}
    return [row for row in rows if row.name in names]
