"""A figure of the report, and its panels of lines in Vega-Lite."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from sliceformer_lab.commands.compare.row_looks import Look
from sliceformer_lab.measures.metric_scale import format_heading
from sliceformer_lab.measures.statistics import FEWEST_IN_INTERVAL, student_half_width

WIDTH, HEIGHT = 210, 170  # of a panel, in pixels
COLUMNS = 3  # panels in a row
MOST_POINTS = 120  # on a line
SYMBOLS = 7  # markers on a line
PERCENT = "%"  # d3's number format
ROW, MOMENT = "row", "moment"
AFTER, BEFORE = "after training", "before training"
DASHES = {AFTER: [1, 0], BEFORE: [3, 3]}
LOG_AXIS = alt.Axis(format="~g", labelBound=True, tickCount=4)


@dataclass(frozen=True)
class Figure:
    """A figure of one table.

    `spec` is Vega-Lite that contains its data: a `concat` of panels, each with a `width` in pixels, wrapped after
    `columns`. The page replaces widths and columns to fit, and sets colours of text and lines, and fonts.
    """

    name: str  # of its files and its anchor; unique in a report
    title: str
    caption: str  # what is plotted, over how many runs, and its limits
    alt: str  # text alternative: the main numbers
    spec: dict[str, Any]
    table: str = ""  # the title of its table


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
    enough = count >= FEWEST_IN_INTERVAL
    half = student_half_width(std.where(enough).to_numpy(), count.where(enough).to_numpy())
    return common.drop(columns=["std", "count"]).assign(low=mean - half, high=mean + half, n=count)


def subsample(positions: Sequence[int] | np.ndarray, most: int = MOST_POINTS) -> np.ndarray:
    """At most `most` of the positions, evenly spaced, with the first and the last."""
    known: np.ndarray = np.unique(positions)
    if len(known) <= most:
        return known
    places = np.linspace(0, len(known) - 1, most).round().astype(int)
    return np.unique(known[places])


def inline(table: pd.DataFrame) -> alt.InlineData:
    """Rows as CSV with four significant digits, a third of the size of JSON."""
    text = table.to_csv(index=False, float_format="%.4g", lineterminator="\n")
    numbers = {
        str(name): "number" for name in table.select_dtypes("number")
    }  # else an empty cell is text, and plotted at 0
    return alt.InlineData(values=text, format=alt.CsvDataFormat(type="csv", parse=numbers))


def row_channels(looks: Mapping[str, Look], with_legend: bool = True) -> dict[str, Any]:
    """Encodings of rows by colour, shape and dash, with one legend in the order of the table."""
    names = list(looks)

    def scale(values: list[Any]) -> alt.Scale:
        return alt.Scale(domain=names, range=values)

    colours, shapes, dashes = zip(*((look.colour, look.shape, list(look.dash)) for look in looks.values()), strict=True)
    return {
        "color": alt.Color(f"{ROW}:N", scale=scale(list(colours)), legend=legend() if with_legend else None),
        "shape": alt.Shape(f"{ROW}:N", scale=scale(list(shapes)), legend=legend() if with_legend else None),
        "strokeDash": alt.StrokeDash(f"{ROW}:N", scale=scale(list(dashes)), legend=None),
    }


def line_panel(
    table: pd.DataFrame,
    looks: Mapping[str, Look],
    *,
    x: str,
    title: str,
    log: bool = False,
    numbers: str = "",
    domain: tuple[float, float] | None = None,
    reach: tuple[int, int] | None = None,
) -> alt.LayerChart:
    """Lines of means over x with interval bands, from the columns row, x, mean, low, high, n.

    With a column `moment` the dash shows the moment instead of the row, and only AFTER has bands and symbols. The axes
    fit the means unless `domain` (of y) and `reach` (of x) are given; wider bands are clipped. `numbers` is d3's
    number format of the y axis.
    """
    low, high = domain or axis_bounds(table["mean"], log)
    points = table.assign(symbol=_with_symbol(table))
    if log:
        points["low"] = points["low"].clip(lower=low)  # a log axis has no place for 0
    if MOMENT in table:
        points[["low", "high"]] = points[["low", "high"]].where(points[MOMENT] == AFTER)
        dash = alt.StrokeDash(
            f"{MOMENT}:N", scale=alt.Scale(domain=list(DASHES), range=list(DASHES.values())), legend=legend(stroke=1.8)
        )
    channels = row_channels(looks)
    ends = reach or (int(table["x"].min()), int(table["x"].max()))
    across = alt.Scale(domain=list(ends), nice=False, zero=False)
    kind = axis_scale((low, high), log)
    base = alt.Chart(inline(points)).encode(x=alt.X("x:Q", axis=_whole_numbers(ends), scale=across).title(x))
    axis = LOG_AXIS if log else alt.Axis(format=numbers or alt.Undefined, labelBound=True)
    at = alt.Y("mean:Q", scale=kind, axis=axis).title(None)
    tooltip = [
        alt.Tooltip(f"{ROW}:N"),
        alt.Tooltip("x:Q", title=x),
        *map(alt.Tooltip, ("mean:Q", "low:Q", "high:Q", "n:Q")),
    ]
    band = (
        base.transform_filter("isValid(datum.low)")
        .mark_area(clip=True, opacity=0.14)
        .encode(y=alt.Y("low:Q", scale=kind), y2=alt.Y2("high:Q"), color=channels["color"])
    )
    line = base.mark_line(clip=True, strokeWidth=1.8).encode(
        y=at, color=channels["color"], strokeDash=dash if MOMENT in table else channels["strokeDash"]
    )
    point = (
        base.transform_filter("datum.symbol == 1")
        .mark_point(filled=True, opacity=1, size=34)
        .encode(y=at, color=channels["color"], shape=channels["shape"], tooltip=tooltip)
    )
    return alt.LayerChart(layer=[band, line, point], width=WIDTH, height=HEIGHT, title=title)


def gradient_panel(
    table: pd.DataFrame, *, title: str, domain: tuple[float, float], reach: tuple[int, int], epochs: tuple[int, int]
) -> alt.Chart:
    """Spectra over the index x (columns epoch, x, mean, n): a line for each epoch, coloured by epoch."""
    early_to_late = alt.Scale(scheme="viridis", domain=list(epochs))
    across = alt.Scale(domain=list(reach), nice=False, zero=False)
    panel: alt.Chart = (
        alt.Chart(inline(table))
        .mark_line(clip=True, strokeWidth=1.6, point=alt.OverlayMarkDef(size=14, clip=False))
        .encode(
            x=alt.X("x:Q", axis=_whole_numbers(reach), scale=across).title("index i"),
            y=alt.Y("mean:Q", scale=alt.Scale(type="log", domain=list(domain), nice=False), axis=LOG_AXIS).title(None),
            color=alt.Color("epoch:Q", scale=early_to_late, legend=alt.Legend(title="epoch")),
            detail=alt.Detail("epoch:N"),
            tooltip=list(map(alt.Tooltip, ("epoch:Q", "x:Q", "mean:Q", "n:Q"))),
        )
        .properties(width=WIDTH, height=HEIGHT, title=title)
    )
    return panel


def side_by_side(panels: Sequence[alt.LayerChart | alt.Chart], columns: int = COLUMNS) -> dict[str, Any]:
    """The specification of panels side by side, with shared colours, shapes and dashes."""
    parts = [panel.to_dict(validate=False) for panel in panels]  # tests validate; validation takes seconds
    top_level = ("$schema", "config", "datasets")
    return {
        "$schema": alt.SCHEMA_URL,
        "datasets": {name: rows for part in parts for name, rows in part["datasets"].items()},
        "concat": [{key: value for key, value in part.items() if key not in top_level} for part in parts],
        "columns": min(columns, len(parts)),
        "resolve": {"scale": {"color": "shared", "shape": "shared", "strokeDash": "shared"}},
    }


def legend(stroke: float = 0) -> alt.Legend:
    """A legend without title and with opaque symbols; lines need a `stroke` width in pixels."""
    return alt.Legend(title=None, symbolOpacity=1, symbolSize=70, symbolStrokeWidth=stroke)


def axis_scale(ends: tuple[float, float], log: bool = False) -> alt.Scale:
    """A scale between two values and no further."""
    return (
        alt.Scale(type="log", domain=list(ends), nice=False)
        if log
        else alt.Scale(domain=list(ends), nice=False, zero=False)
    )


def axis_format(metric: str) -> str:
    """d3's number format for the axis of a metric: percent if the tables use percent."""
    return PERCENT if format_heading(metric).endswith("%") else ""


def _with_symbol(table: pd.DataFrame) -> pd.Series:
    """1 at about SYMBOLS points of each line, including its ends, else 0."""
    shown = table[table[MOMENT] == AFTER] if MOMENT in table else table
    place = shown.groupby(ROW)["x"].rank(method="first").astype(int) - 1
    length = shown.groupby(ROW)["x"].transform("size")
    step = (length / SYMBOLS).apply(np.ceil).astype(int)
    has_symbol = (place % step == 0) | (place == length - 1)
    return has_symbol.reindex(table.index, fill_value=False).astype(int)


def axis_bounds(
    means: pd.Series, log: bool, within: tuple[float, float] = (-math.inf, math.inf), room: float = 0.06
) -> tuple[float, float]:
    """Bounds of an axis wider than the means by a share `room` of their range, and never beyond `within`."""
    values = np.log10(means[means > 0]) if log else means
    low, high = (float(values.min()), float(values.max())) if len(values) else (0.0, 1.0)
    margin = room * (high - low) or 0.05 * abs(high) or 0.05
    ends = (low - margin, high + margin)
    return (10 ** ends[0], 10 ** ends[1]) if log else (max(within[0], ends[0]), min(within[1], ends[1]))


def _whole_numbers(ends: tuple[int, int]) -> alt.Axis:
    """An axis with whole numbers only."""
    return alt.Axis(tickMinStep=1, format="d", tickCount=min(6, max(1, ends[1] - ends[0])))
