"""Matplotlib panels of all analyses: one style for each attention, grey controls, a legend below."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import cycle
from typing import Any, Literal

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from sliceformer_lab.measures.plots import COLOURS, MARKERS

GREYS = ("0.25", "0.45", "0.58", "0.35")
DASHES: tuple[Any, ...] = ("--", "-.", (0, (5, 1)), (0, (3, 1, 1, 1, 1, 1)))
CONTROL_MARKERS = "1234"
INCHES_OF_A_LETTER, INCHES_OF_A_LINE = 0.075, 0.65  # in a legend of font size 9: a letter, and a line with its gaps
CHECKPOINT_TITLES = {"init": "untrained", "best": "trained", "last": "trained, last epoch"}

Style = dict[str, Any]
Shared = Literal["none", "row", "col", "all"]


def styles(table: pd.DataFrame) -> dict[str, Style]:
    """Line styles by attention, from the columns `attention`, `control` and `run` of a table.

    Controls are grey and dashed; the label of a control without a run says that it is untrained.
    """
    found: dict[str, Style] = {}
    num_before = 0
    looks = zip(cycle(COLOURS), cycle(MARKERS), strict=False)
    grey_looks = zip(cycle(GREYS), cycle(CONTROL_MARKERS), cycle(DASHES), strict=False)
    for attention, rows in table.groupby("attention", sort=False):
        if rows["control"].any():
            colour, marker, dashes = next(grey_looks)
            kind = "control, only untrained" if (rows["run"] == "").all() else "control"
            label = f"{attention} ({kind})"
        else:
            colour, marker = next(looks)
            num_before += 1
            dashes, label = "-" if num_before <= len(COLOURS) else ":", str(attention)  # more attentions than colours
        found[str(attention)] = {"color": colour, "marker": marker, "linestyle": dashes, "label": label}
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


def whole_numbers(axes: Axes) -> None:
    """Put the ticks of the x axis at integers."""
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))


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


def over_runs(table: pd.DataFrame, along: Sequence[str]) -> Iterator[tuple[str, pd.DataFrame]]:
    """Each attention with its line: `mean` over runs and `spread` for every value of the columns `along`.

    `spread` is the standard deviation over runs, or over samples if there is one run.
    """
    grouped = table.dropna(subset="mean").groupby(["attention", *along], sort=False)
    found = grouped.agg(mean=("mean", "mean"), std=("mean", "std"), over_samples=("std_over_samples", "mean"))
    found = found.assign(spread=found["std"].fillna(found["over_samples"])).reset_index()
    for attention, line in found.groupby("attention", sort=False):
        yield str(attention), line.sort_values(list(along))


def caption(table: pd.DataFrame) -> str:
    """A description of the lines and bands of `over_runs`."""
    runs = table.groupby("attention")["seed"].nunique()
    samples = int(table["samples"].max())
    if runs.max() == 1:
        return f"mean and standard deviation over {samples} samples"
    seeds = f"{runs.min()} to {runs.max()}" if runs.min() < runs.max() else f"{runs.max()}"
    return f"mean over {samples} samples and {seeds} seeds, band: standard deviation over seeds"
