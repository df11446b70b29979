"""Matplotlib panels of all analyses: one style for each attention, grey controls, a legend below."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any, Literal

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray
from rich.table import Table

from sliceformer_lab.commands.compare.row_looks import look_at
from sliceformer_lab.measures.plots import whole_numbers

INCHES_OF_A_LETTER, INCHES_OF_A_LINE = 0.075, 0.65  # in a legend of font size 9: a letter, and a line with its gaps
CHECKPOINT_TITLES = {"init": "untrained", "best": "trained", "last": "trained, last epoch"}

Style = dict[str, Any]
Shared = Literal["none", "row", "col", "all"]


def styles(table: pd.DataFrame) -> dict[str, Style]:
    """Line styles by attention, from the columns `attention`, `control` and `run` of a table.

    Controls are grey and dotted; the label of a control without a run says that it is untrained.
    """
    found: dict[str, Style] = {}
    numbers = {True: count(), False: count()}
    for attention, rows in table.groupby("attention", sort=False):
        is_control, label = bool(rows["control"].any()), str(attention)
        if is_control:
            label += f" ({'control, only untrained' if (rows['run'] == '').all() else 'control'})"
        look = look_at(next(numbers[is_control]), is_control)
        found[str(attention)] = {"color": look.colour, "marker": look.marker, "linestyle": look.line, "label": label}
    return found


def panels(
    rows: int,
    columns: int,
    *,
    width: float = 3.1,
    height: float = 2.7,
    sharex: Shared = "col",
    sharey: Shared = "row",
) -> tuple[Figure, NDArray[Any]]:
    """A figure and its axes (rows, columns); `width` and `height` of a panel are in inches."""
    figure = Figure(figsize=(max(width * columns, 7), height * rows + 1.2), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, sharex=sharex, sharey=sharey)


def line_with_band(
    axes: Axes, x: NDArray[Any], mean: NDArray[np.float64], spread: NDArray[np.float64], style: Mapping[str, Any]
) -> None:
    """A line with a band of `spread` on either side; no band where `spread` is NaN."""
    axes.plot(x, mean, markersize=4, linewidth=1.3, **style)
    if np.isfinite(spread).any():
        low, high = mean - spread, mean + spread
        axes.fill_between(x, low, high, color=style["color"], alpha=0.15, linewidth=0)


def legend_below(figure: Figure, used: Iterable[Style], columns: int = 5) -> None:
    """One legend for all panels, below them, in at most `columns` columns and no wider than the figure."""
    handles = [Line2D([], [], markersize=4, linewidth=1.3, **style) for style in used]
    longest = max((len(str(handle.get_label())) for handle in handles), default=0)
    fitting = int(figure.get_figwidth() / (INCHES_OF_A_LETTER * longest + INCHES_OF_A_LINE))
    figure.legend(
        handles=handles,
        loc="outside lower center",
        ncols=max(1, min(columns, fitting)),
        frameon=False,
        fontsize=9,
    )


def draw_grid(
    shown: Sequence[tuple[str, pd.DataFrame]],
    looks: Mapping[str, Style],
    *,
    columns: int,
    axes_names: tuple[str, Sequence[str]],
    title: str,
    log_rows: int = 0,
    **size: Any,
) -> Figure:
    """A panel for each title and rows of a table, with a line for every attention over `layer` or, of spectra, `index`.

    `axes_names` are that of x and of y in each row of panels; the first `log_rows` have a logarithmic axis, on which no
    band would reach 0. `size` goes to `panels`.
    """
    figure, grid = panels(len(shown) // columns, columns, **size)
    for number, (axes, (name, rows)) in enumerate(zip(grid.flat, shown, strict=True)):
        is_log = number < log_rows * columns
        along = "index" if (rows["measure"] == "spectrum").any() else "layer"
        for attention, line in over_runs(rows, along):
            mean, spread = line["mean"].to_numpy(), line["spread"]
            band = spread.where(spread < 0.9 * mean) if is_log else spread
            style = looks[attention] | {"markevery": max(1, len(line) // 8)}
            line_with_band(axes, line[along].to_numpy(), mean, band.to_numpy(), style)
        axes.set_title(name, fontsize=10)
        axes.set_yscale("log" if is_log else "linear")
        axes.grid(alpha=0.3)
        whole_numbers(axes)
    for axes in grid[-1]:
        axes.set_xlabel(axes_names[0])
    for axes, label in zip(grid[:, 0], axes_names[1], strict=True):
        axes.set_ylabel(label)
    drawn = {attention for _, rows in shown for attention in rows["attention"].unique()}
    legend_below(figure, [look for attention, look in looks.items() if attention in drawn])
    figure.suptitle(title, fontsize=11)
    return figure


def over_runs(table: pd.DataFrame, along: str) -> Iterator[tuple[str, pd.DataFrame]]:
    """Each attention with its line: `mean` over runs and `spread` for every value of the column `along`.

    `spread` is the standard deviation over runs, or over samples if there is one run.
    """
    grouped = table.dropna(subset="mean").groupby(["attention", along], sort=False)
    found = grouped.agg(mean=("mean", "mean"), std=("mean", "std"), over_samples=("std_over_samples", "mean"))
    found = found.assign(spread=found["std"].fillna(found["over_samples"])).reset_index()
    for attention, line in found.groupby("attention", sort=False):
        yield str(attention), line.sort_values(along)


def caption(table: pd.DataFrame) -> str:
    """A description of the lines and bands of `over_runs`."""
    runs = table.groupby("attention")["seed"].nunique()
    samples = int(table["samples"].max())
    if runs.max() == 1:
        return f"mean and standard deviation over {samples} samples"
    seeds = f"{runs.min()} to {runs.max()}" if runs.min() < runs.max() else f"{runs.max()}"
    return f"mean over {samples} samples and {seeds} seeds, band: standard deviation over seeds"


def summary_table(
    title: str, table: pd.DataFrame, columns: Iterable[str], cells: Callable[[pd.DataFrame], Sequence[str]]
) -> Table:
    """A row for each attention and its weights: the number of seeds, and the `cells` of its rows under `columns`."""
    printed = Table("attention", "weights", "seeds", title=title, title_justify="left")
    for column in columns:
        printed.add_column(column, justify="right")
    for (attention, checkpoint), here in table.groupby(["attention", "checkpoint"], sort=False):
        control = " (control)" if here["control"].any() else ""
        printed.add_row(f"{attention}{control}", str(checkpoint), str(here["seed"].nunique()), *cells(here))
    return printed
