"""Charts of all analyses: a line for each attention over layers or indices, grey controls."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

import pandas as pd
from rich.table import Table

from sliceformer_lab.measures.drawing import PANEL_INCHES, Chart, Look, legend_of, looks_of
from sliceformer_lab.measures.line_panels import ROW, axis_bounds, line_panel
from sliceformer_lab.runs.plain_text import format_range

CHECKPOINT_TITLES = {"init": "untrained", "best": "trained", "last": "trained, last epoch"}


def name_rows(table: pd.DataFrame) -> pd.DataFrame:
    """The table with the column ROW: what each attention is called in legends.

    The name of a control says so, and of one without a run that it is untrained.
    """
    names = {}
    for attention, rows in table.groupby("attention", sort=False):
        untrained = ", only untrained" if (rows["run"] == "").all() else ""
        names[attention] = f"{attention} (control{untrained})" if rows["control"].any() else str(attention)
    return table.assign(**{ROW: table["attention"].map(names)})


def looks_of_rows(table: pd.DataFrame) -> dict[str, Look]:
    """The look of each row of a table with the columns ROW and `control`."""
    return looks_of(
        {str(row): bool(control) for row, control in table.groupby(ROW, sort=False)["control"].any().items()}
    )


def draw_grid(
    name: str,
    shown: Sequence[tuple[str, pd.DataFrame]],
    looks: Mapping[str, Look],
    *,
    columns: int,
    axes_names: tuple[str, Sequence[str]],
    heading: str,
    log_rows: int = 0,
    size: tuple[float, float] = PANEL_INCHES,
) -> Chart:
    """A panel for each title and rows of a table, with a line for every attention over `layer` or, of spectra, `index`.

    `axes_names` are that of x and of y in each row of panels, whose y axes are equal; the first `log_rows` are
    logarithmic.
    """
    along = "index" if any((rows["measure"] == "spectrum").any() for _, rows in shown) else "layer"
    tables = [(title, lines_over(rows, along)) for title, rows in shown]
    places = pd.concat([table["x"] for _, table in tables])
    reach = (int(places.min()), int(places.max())) if len(places) else (0, 1)  # nothing: all tokens are equal
    panels = []
    for row, label in enumerate(axes_names[1]):
        here = tables[row * columns : (row + 1) * columns]
        log = row < log_rows
        domain = axis_bounds(pd.concat([table["mean"] for _, table in here]), log)
        for title, table in here:
            with_ends = partial(line_panel, table, looks, log=log, domain=domain, reach=reach)
            panels.append(with_ends(x=axes_names[0], y=label, title=title))
    drawn = {row for _, rows in shown for row in rows[ROW].unique()}
    return Chart(
        name=name,
        panels=panels,
        legend=legend_of({row: look for row, look in looks.items() if row in drawn}),
        heading=heading,
        size=size,
        columns=columns,
        has_outer_labels=True,
    )


def lines_over(table: pd.DataFrame, along: str) -> pd.DataFrame:
    """The columns ROW, x, mean, low and high: the mean over runs for every value of the column `along`.

    Bounds are one standard deviation away: over runs, or over samples if there is one run.
    """
    grouped = table.dropna(subset="mean").groupby([ROW, along], sort=False)
    found = grouped.agg(mean=("mean", "mean"), std=("mean", "std"), over_samples=("std_over_samples", "mean"))
    spread = found["std"].fillna(found["over_samples"])
    bounds = found.assign(low=found["mean"] - spread, high=found["mean"] + spread).reset_index()
    return bounds.rename(columns={along: "x"}).sort_values("x")


def caption(table: pd.DataFrame) -> str:
    """A description of the lines and bands of `lines_over`."""
    runs = [count_runs(rows) for _, rows in table.groupby("attention")]
    samples = format_range(table.dropna(subset="mean")["samples"])
    if max(runs) == 1:
        return f"mean and standard deviation over {samples} samples"
    alone = " (of one run: over samples)" if min(runs) == 1 else ""
    return f"mean over {samples} samples and {format_range(runs)} runs, band: standard deviation over runs{alone}"


def count_runs(table: pd.DataFrame) -> int:
    """The number of runs, and of seeds of an untrained control, that have rows in a table."""
    return len(table[["run", "seed"]].drop_duplicates())


def summary_table(
    title: str, table: pd.DataFrame, columns: Iterable[str], cells: Callable[[pd.DataFrame], Sequence[str]]
) -> Table:
    """A row for each attention and its weights: the number of runs, and the `cells` of its rows under `columns`."""
    printed = Table("attention", "weights", "runs", title=title)
    for column in columns:
        printed.add_column(column, justify="right")
    for (attention, checkpoint), here in table.groupby(["attention", "checkpoint"], sort=False):
        control = " (control)" if here["control"].any() else ""
        printed.add_row(f"{attention}{control}", str(checkpoint), str(count_runs(here)), *cells(here))
    return printed
