"""Panels of lines over layers, epochs or indices, from tables of means with their bounds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from textwrap import fill
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator, PercentFormatter, StrMethodFormatter

from sliceformer_lab.measures.drawing import MUTED, Look, Panel
from sliceformer_lab.measures.metric_scale import PERCENT, factor_of
from sliceformer_lab.measures.statistics import MIN_INTERVAL_RUNS, student_half_width

MAX_LINE_POINTS = 120  # on a line
SYMBOLS = 7  # markers on a line
TITLE_LETTERS = 28  # of a line of a panel's title
ROW, MOMENT = "row", "moment"
AFTER, BEFORE = "after training", "before training"


def seed_means(values: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    """Mean, low, high and n of the column `value` over runs, for each combination of `keys`.

    The bounds are 95 % intervals (Student's t), from three runs on. Points of fewer than half of a row's runs, such as
    the last epochs of the longest run, are dropped.
    """
    known = values[np.isfinite(values["value"].astype(float))]
    grouped = known.groupby(list(keys), sort=False)["value"].agg(["mean", "std", "count"]).reset_index()
    most = grouped.groupby(ROW)["count"].transform("max")
    common = grouped[2 * grouped["count"] >= most]
    mean, std, count = common["mean"], common["std"], common["count"]
    enough = count >= MIN_INTERVAL_RUNS
    half = student_half_width(std.where(enough).to_numpy(), count.where(enough).to_numpy())
    return common.drop(columns=["std", "count"]).assign(low=mean - half, high=mean + half, n=count)


def thin_out(positions: Sequence[int] | np.ndarray, most: int = MAX_LINE_POINTS) -> np.ndarray:
    """At most `most` of the positions, evenly spaced, with the first and the last."""
    known: np.ndarray = np.unique(positions)
    if len(known) <= most:
        return known
    places = np.linspace(0, len(known) - 1, most).round().astype(int)
    return np.unique(known[places])


def moments_legend() -> list[Line2D]:
    """The entries that tell the lines of AFTER from those of BEFORE."""
    return [Line2D([], [], color=MUTED, label=AFTER), Line2D([], [], color=MUTED, linestyle="--", label=BEFORE)]


def line_panel(
    table: pd.DataFrame,
    looks: Mapping[str, Look],
    *,
    x: str,
    title: str,
    y: str = "",
    metric: str = "",
    log: bool = False,
    domain: tuple[float, float] | None = None,
    reach: tuple[int, int] | None = None,
) -> Panel:
    """Lines of means over x with interval bands, from the columns row, x, mean, low, high.

    With a column `moment` the dash shows the moment instead of the row, and only AFTER has bands and symbols. The axes
    fit the means unless `domain` (of y) and `reach` (of x) are given; wider bands are clipped.
    """
    ends = domain or axis_bounds(table["mean"], log)

    def draw(axes: Axes) -> None:
        for name, look in looks.items():
            here = table[table[ROW] == name]
            if MOMENT in table:
                _draw_line(axes, here[here[MOMENT] == BEFORE], look.colour, linestyle="--")
                here = here[here[MOMENT] == AFTER]
            style = "-" if MOMENT in table else look.line
            symbols = {"marker": look.marker, "markevery": _places_of_symbols(len(here)), "label": name}
            _draw_line(axes, here, look.colour, linestyle=style, **symbols)
            low = here["low"].clip(lower=ends[0])  # a log axis has no place for 0
            axes.fill_between(here["x"], low, here["high"], color=look.colour, alpha=0.14, linewidth=0)
        _index_axis(axes, x, reach or ((int(table["x"].min()), int(table["x"].max())) if len(table) else (0, 1)))
        value_axis(axes, ends, log=log, metric=metric)
        axes.set(title=fill(title, TITLE_LETTERS), ylabel=y)

    return draw


def gradient_panel(
    table: pd.DataFrame, colours: Mapping[int, str], *, title: str, domain: tuple[float, float], reach: tuple[int, int]
) -> Panel:
    """Spectra over the index x (columns shade, x, mean): a line for each epoch or layer `shade`, in its colour."""

    def draw(axes: Axes) -> None:
        for shade, here in table.groupby("shade"):
            _draw_line(axes, here, colours[int(str(shade))], marker="o", markersize=2.5)
        _index_axis(axes, "index i", reach)
        value_axis(axes, domain, log=True)
        axes.set_title(fill(title, TITLE_LETTERS))

    return draw


def value_axis(axes: Axes, ends: tuple[float, float], *, log: bool = False, metric: str = "") -> None:
    """Let the y axis end at two values, with few and plain numbers, in percent for a metric that the tables show so."""
    axes.set_ylim(ends)
    if log:
        axes.set_yscale("log")
        write_plain_numbers(axes.yaxis, ends)
    elif factor_of(metric) == PERCENT:
        axes.yaxis.set_major_formatter(PercentFormatter(1))


def write_plain_numbers(axis: Axis, ends: tuple[float, float]) -> None:
    """Give a logarithmic axis between two values a few numbers, none as a power."""
    decades = math.log10(ends[1] / ends[0])
    few = LogLocator(subs=(1.0,) if decades > 1.5 else (1.0, 2.0, 5.0), numticks=5)
    axis.set_major_locator(few if decades > 0.7 else MaxNLocator(4))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(StrMethodFormatter("{x:g}"))


def axis_bounds(
    means: pd.Series, log: bool, within: tuple[float, float] = (-math.inf, math.inf), room: float = 0.06
) -> tuple[float, float]:
    """Bounds of an axis wider than the means by a share `room` of their range, and never beyond `within`."""
    values = np.log10(means[means > 0]) if log else means
    low, high = (float(values.min()), float(values.max())) if len(values) else (0.0, 1.0)
    margin = room * (high - low) or 0.05 * abs(high) or 0.05
    ends = (low - margin, high + margin)
    return (10 ** ends[0], 10 ** ends[1]) if log else (max(within[0], ends[0]), min(within[1], ends[1]))


def _draw_line(axes: Axes, points: pd.DataFrame, colour: str, **style: Any) -> None:
    if len(points):
        axes.plot(points["x"], points["mean"], color=colour, linewidth=1.4, **style)


def _index_axis(axes: Axes, name: str, ends: tuple[int, int]) -> None:
    """The x axis of layers, epochs or indices, with whole numbers only."""
    room = 0.02 * (ends[1] - ends[0]) or 0.5  # for half a symbol
    axes.set(xlabel=name, xlim=(ends[0] - room, ends[1] + room))
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True, min_n_ticks=1))


def _places_of_symbols(length: int) -> list[int]:
    """About SYMBOLS places on a line, its ends included."""
    return sorted({*range(0, length, max(1, -(-length // SYMBOLS))), length - 1}) if length else []
