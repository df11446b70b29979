"""The colour, marker and line style of each row, the same in all figures of a report, an analysis and on W&B."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.typing import LineStyleType

from sliceformer_lab.measures.plots import COLOURS, MARKERS
from sliceformer_lab.runs.controls import is_control
from sliceformer_lab.runs.groups import Row, Table
from sliceformer_lab.runs.plain_text import one_line

ATTENTION_COLOURS = COLOURS[:-1]  # without black, which is invisible in dark mode
CONTROL_COLOURS = ("#767676", "#A0A0A0")
LINES: tuple[LineStyleType, ...] = ("-", "--")
CONTROL_LINE: LineStyleType = ":"


@dataclass(frozen=True)
class Look:
    """Colour, marker and line style of a row, as matplotlib names them."""

    colour: str
    marker: str
    line: LineStyleType


def name_in_figures(row: Row) -> str:
    """What a row is called in legends."""
    words = one_line(" ".join([row.label, *map(str, row.factors)]))
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
    return {name: look_at(place, controls[name]) for name, place in places.items()}


def look_at(place: int, control: bool) -> Look:
    """The look with this number among those of attentions, or of controls."""
    colours = CONTROL_COLOURS if control else ATTENTION_COLOURS
    turn, colour = divmod(place, len(colours))
    marker = MARKERS[-1 - place % len(MARKERS)] if control else MARKERS[(colour + turn) % len(MARKERS)]
    return Look(colours[colour], marker, CONTROL_LINE if control else LINES[turn % len(LINES)])
