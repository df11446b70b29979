"""The colour, marker and line style of each row, the same in all figures of a report, an analysis and on W&B."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sliceformer_lab.measures.drawing import Look, look_at
from sliceformer_lab.runs.controls import is_control
from sliceformer_lab.runs.groups import Row, Table
from sliceformer_lab.runs.plain_text import one_line


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
