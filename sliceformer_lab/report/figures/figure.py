"""What a figure of the report is, and how its panels are drawn: one look for each row of the tables in all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from sliceformer_lab.analysis.statistics import student_half_width
from sliceformer_lab.report.tables import headed

WIDTH, HEIGHT = 210, 170  # of a panel, where nobody sets another
COLUMNS = 3  # of panels
MOST_POINTS = 120  # of a line
SYMBOLS = 7  # about so many of them show which line is which
ROW = "row"


@dataclass(frozen=True)
class Figure:
    """A picture of one table.

    `spec` is Vega-Lite with every number in it: a `concat` of panels, each with its own `width` in pixels, wrapped
    after `columns`, and without colours of the page or fonts. Whoever shows it sets these three to fit.
    """

    name: str  # of its files and its anchor, unique within a report
    title: str
    caption: str  # what is drawn, of how many runs, and what it cannot show
    alt: str  # the main numbers in a sentence or two
    spec: dict[str, Any]


@dataclass(frozen=True)
class Look:
    """How a row is drawn wherever it is."""

    colour: str
    shape: str
    dash: tuple[int, ...]  # (1, 0) is a whole line


def rows_alike(values: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    """One row for each of `keys`: mean, 95 % bounds (Student's t) and n of the column `value` over runs.

    What fewer than half of a row's runs have (those that stopped late, the longest texts) is left out.
    """
    known = values[np.isfinite(values["value"])]
    grouped = known.groupby(list(keys), sort=False)["value"].agg(["mean", "std", "count"]).reset_index()
    most = grouped.groupby(ROW)["count"].transform("max")
    kept = grouped[2 * grouped["count"] >= most]
    half = student_half_width(kept["std"].to_numpy(), kept["count"].to_numpy())
    means = kept["mean"]
    return kept.drop(columns=["std", "count"]).assign(low=means - half, high=means + half, n=kept["count"])


def thinned(positions: Sequence[int] | np.ndarray, most: int = MOST_POINTS) -> np.ndarray:
    """At most so many of the positions, spread evenly, with the first and the last."""
    known = np.unique(positions)
    if len(known) <= most:
        return known
    return known[np.unique(np.linspace(0, len(known) - 1, most).round().astype(int))]


def inline(table: pd.DataFrame) -> alt.InlineData:
    """Rows as CSV of four significant digits, a third of the size of JSON."""
    text = table.to_csv(index=False, float_format="%.4g", lineterminator="\n")
    return alt.InlineData(values=text, format=alt.CsvDataFormat(type="csv"))


def row_channels(looks: Mapping[str, Look]) -> dict[str, Any]:
    """Colour, shape and dash of rows; one legend for the three, in the order of the table."""
    names = list(looks)

    def scale(values: list[Any]) -> alt.Scale:
        return alt.Scale(domain=names, range=values)

    legend = alt.Legend(title=None, symbolOpacity=1, symbolSize=70, symbolStrokeWidth=1.8)
    colours, shapes, dashes = zip(*((look.colour, look.shape, list(look.dash)) for look in looks.values()), strict=True)
    return {
        "color": alt.Color(f"{ROW}:N", scale=scale(list(colours)), legend=legend),
        "shape": alt.Shape(f"{ROW}:N", scale=scale(list(shapes)), legend=legend),
        "strokeDash": alt.StrokeDash(f"{ROW}:N", scale=scale(list(dashes)), legend=legend),
    }


def line_panel(
    table: pd.DataFrame, looks: Mapping[str, Look], *, x: str, title: str, log: bool = False, numbers: str = ""
) -> alt.LayerChart:
    """Means over x with their bounds (columns row, x, mean, low, high, n), told apart by colour, shape and dash.

    The axis fits the means; a wider band goes out of the panel. `numbers` is d3's format of those on it.
    """
    drawn = table.assign(symbol=_with_symbol(table))
    low, high = _fitting(drawn["mean"], log)
    channels = row_channels(looks)
    kind = alt.Scale(type="log" if log else "linear", domain=[low, high], nice=False, clamp=False, zero=False)
    if log:
        drawn["low"] = drawn["low"].clip(lower=low)  # a logarithm of 0 has no place
    across = alt.Scale(nice=False, zero=False)
    base = alt.Chart(inline(drawn)).encode(x=alt.X("x:Q", axis=_whole_numbers(drawn["x"]), scale=across).title(x))
    axis = alt.Axis(format=numbers, labelFlush=True) if numbers else alt.Axis(labelFlush=True)
    at = alt.Y("mean:Q", scale=kind, axis=axis).title(None)
    tooltip = [f"{ROW}:N", alt.Tooltip("x:Q", title=x), "mean:Q", "low:Q", "high:Q", "n:Q"]
    band = base.mark_area(clip=True, opacity=0.16).encode(
        y=alt.Y("low:Q", scale=kind), y2="high:Q", color=channels["color"]
    )
    line = base.mark_line(clip=True, strokeWidth=1.8).encode(
        y=at, color=channels["color"], strokeDash=channels["strokeDash"]
    )
    point = (
        base.transform_filter("datum.symbol == 1")
        .mark_point(filled=True, opacity=1, size=34)
        .encode(y=at, color=channels["color"], shape=channels["shape"], tooltip=tooltip)
    )
    return alt.layer(band, line, point).properties(width=WIDTH, height=HEIGHT, title=title)


def side_by_side(panels: Sequence[alt.LayerChart | alt.Chart], columns: int = COLUMNS) -> dict[str, Any]:
    """The specification of panels in a wrapping row, rows of the table told apart alike in all of them."""
    chart = alt.ConcatChart(concat=list(panels), columns=min(columns, len(panels))).resolve_scale(
        color="shared", shape="shared", strokeDash="shared"
    )
    spec: dict[str, Any] = chart.to_dict()
    spec.pop("config", None)  # altair's default look
    return spec


def axis_format(metric: str) -> str:
    """How the axis of a metric writes its numbers, in d3's words: in percent where the tables do."""
    return "%" if headed(metric).endswith("%") else ""


def _with_symbol(table: pd.DataFrame) -> pd.Series:
    """1 at a few points of each line, always at its ends."""
    place = table.groupby(ROW)["x"].rank(method="first").astype(int) - 1
    length = table.groupby(ROW)["x"].transform("size")
    step = (length / SYMBOLS).apply(np.ceil).astype(int)
    return ((place % step == 0) | (place == length - 1)).astype(int)


def _fitting(means: pd.Series, log: bool) -> tuple[float, float]:
    """Bounds of an axis a little wider than the means."""
    values = np.log10(means[means > 0]) if log else means
    low, high = (float(values.min()), float(values.max())) if len(values) else (0.0, 1.0)
    margin = 0.08 * (high - low) or 0.05 * abs(high) or 0.05
    bounds = (low - margin, high + margin)
    return (10 ** bounds[0], 10 ** bounds[1]) if log else bounds


def _whole_numbers(x: pd.Series) -> alt.Axis:
    """An axis without fractions of an epoch or a layer."""
    return alt.Axis(tickMinStep=1, format="d", tickCount=min(6, max(1, int(x.max() - x.min()))) if len(x) else 1)
