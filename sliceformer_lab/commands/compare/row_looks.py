"""The colour, marker and dash of each row, the same in all figures of a report and on W&B."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sliceformer_lab.measures.plots import COLOURS
from sliceformer_lab.runs.controls import is_control
from sliceformer_lab.runs.groups import Row, Table

ATTENTION_COLOURS = COLOURS[:-1]  # without black, which is invisible in dark mode
CONTROL_COLOURS = ("#767676", "#A0A0A0")
SHAPES = ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross")
WHOLE, LONG, DOTS = (1, 0), (9, 3), (2, 2)


@dataclass(frozen=True)
class Look:
    """Colour, marker and dash of a row."""

    colour: str
    shape: str
    dash: tuple[int, ...]  # (1, 0) is a solid line


def name_in_figures(row: Row) -> str:
    """What a row is called in legends."""
    words = " ".join([row.label, *map(str, row.factors)])
    return f"{words} (control)" if is_control(row.attention) else words


def assign_looks(tables: Sequence[Table]) -> Mapping[str, Look]:
    """A look for each name, in the order of the names: the first that no row of the same tables has."""
    names = [{name_in_figures(row): is_control(row.attention) for row in table.rows} for table in tables]
    controls = {name: control for table in names for name, control in table.items()}
    places: dict[str, int] = {}
    for name, control in sorted(controls.items()):
        neighbours = {other for table in names if name in table for other in table}
        taken = {places[other] for other in neighbours if other in places and controls[other] == control}
        places[name] = next(place for place in range(len(taken) + 1) if place not in taken)
    return {name: _look_at(place, controls[name]) for name, place in places.items()}


def _look_at(place: int, control: bool) -> Look:
    colours = CONTROL_COLOURS if control else ATTENTION_COLOURS
    turn, colour = divmod(place, len(colours))
    shape = SHAPES[-1 - place % len(SHAPES)] if control else SHAPES[(place + turn) % len(SHAPES)]
    return Look(colours[colour], shape, DOTS if control else (WHOLE, LONG)[turn % 2])
