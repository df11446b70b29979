"""Figures of scores, and of score against speed and memory."""

from __future__ import annotations

import re
from collections.abc import Sequence
from statistics import median

import altair as alt
import numpy as np
import pandas as pd

from sliceformer_lab.commands.report.figures.figure import (
    ROW,
    WIDTH,
    Figure,
    axis_bounds,
    axis_format,
    inline,
    row_channels,
    side_by_side,
)
from sliceformer_lab.commands.report.figures.plot_rows import PlotRow, PlotTable, select_rows
from sliceformer_lab.commands.report.lines import machine
from sliceformer_lab.commands.report.reference_rows import references_of
from sliceformer_lab.measures.metric_scale import format_heading, format_value, less_is_better, metric_bounds

MOST_ROWS = 40  # of a figure
ROW_PIXELS = 30  # pixels for a row
WIDE, HIGH = 2 * WIDTH, 300
REFERENCE = (1, 3)  # the dash of a reference; chance has longer dashes
BUBBLES = [60, 1200]  # area in square pixels at least and most memory


def score_figures(plotted: PlotTable) -> list[Figure]:
    """Scores, and score against speed; figures without data are left out."""
    return [*_scores(plotted), *_bubbles(plotted)]


def _scores(plotted: PlotTable) -> list[Figure]:
    """Mean, interval and single runs of each row, best mean first."""
    rows = select_rows([row for row in plotted.rows if row.line.mean is not None], MOST_ROWS)
    if not rows:
        return []
    rows = sorted(rows, key=_mean, reverse=not less_is_better(plotted.metric))
    runs = pd.DataFrame(
        [{ROW: row.name, "value": value, "seed": unit[0]} for row in rows for unit, value in row.line.values.items()]
    )
    table = pd.DataFrame(
        {
            ROW: [row.name for row in rows],
            "label": [f"{row.name}, {_count(row)}" for row in rows],
            "value": [_mean(row) for row in rows],
            **_interval_columns(rows),
        }
    )
    room = 0.5 * (runs["value"].max() - runs["value"].min())  # for intervals wider than the range of the runs
    ends = table[["low", "high"]].clip(runs["value"].min() - room, runs["value"].max() + room)
    share = axis_format(plotted.metric) != ""
    best = next(iter(references_of((run for row in rows for run in row.runs), plotted.metric)), None)
    sign = -1 if less_is_better(plotted.metric) else 1
    beats_a_run = best is not None and (sign * (best.value - runs["value"]) > 0).any()
    marked = pd.Series([best.value] if best is not None and beats_a_run else [], dtype=float)
    values = pd.concat([runs["value"], ends["low"], ends["high"], marked]).dropna()
    domain = axis_bounds(values, log=False, within=metric_bounds(plotted.metric))
    chance = next((value for row in rows for run in row.runs if (value := run.number("chance")) is not None), None)
    chance = chance if re.search("loss", plotted.metric) is None else None
    remark = (
        ""
        if chance is None
        else f" Chance, the best constant for the test set, is {format_value(chance, plotted.metric)}{' %' * share}"
    )
    if chance is not None and not domain[0] <= chance <= domain[1]:
        remark, chance = f"{remark}, outside the panel.", None
    elif remark:
        remark += " (dashed line)."
    panel = _dots(table, rows, domain=domain, numbers=axis_format(plotted.metric))
    layers = [_ticks(runs, rows, domain), *panel]
    if chance is not None:
        layers.append(_rule(chance, domain))
    if best is not None:
        inside = domain[0] <= best.value <= domain[1]
        layers += [_rule(best.value, domain, REFERENCE)] if inside else []
        score = f"{format_value(best.value, plotted.metric)}{' %' * share}"
        remark += f" The reference {best.name} has {score} ({'dotted line' if inside else 'outside the panel'})."
    ways = sorted({row.line.interval.how for row in rows if row.line.interval})
    return [
        Figure(
            name=f"scores{plotted.suffix}",
            title="Scores",
            caption=(
                f"{plotted.metric}: mean over successful runs with its 95 % interval "
                f"({' or '.join(ways) or 'no row has the three runs it takes'}); each stroke is a run. "
                "Intervals may be clipped. Rows with overlapping intervals can still differ: the table compares "
                "them on equal seeds."
                f"{remark}"
                f"{plotted.omission(rows)}"
            ),
            alt=f"{format_heading(plotted.metric)}: "
            + ", ".join(f"{row.name} {format_value(_mean(row), plotted.metric)}" for row in rows),
            spec=side_by_side([_stacked(layers, len(rows), format_heading(plotted.metric), WIDE)]),
        )
    ]


def _bubbles(plotted: PlotTable) -> list[Figure]:
    """Score against training speed; the area of a marker shows peak memory."""
    rows = [row for row in plotted.main_rows if row.line.mean is not None and row.line.speed.value is not None]
    if not rows:
        return []
    table = pd.DataFrame(
        {
            ROW: [row.name for row in rows],
            "speed": [row.line.speed.value for row in rows],
            "mean": [_mean(row) for row in rows],
            **_interval_columns(rows),
            "memory": [_memory(row) for row in rows],
        }
    )
    known = bool(table["memory"].notna().all())
    machines = len({machine(run) for row in rows for run in row.runs})
    return [
        Figure(
            name=f"score_against_speed{plotted.suffix}",
            title="Score against speed and memory",
            caption=(
                f"{plotted.metric} with its 95 % interval against samples per second in training (median over the "
                "runs); other jobs on the machine slow a run down. "
                + (
                    "The area of a marker shows peak memory (resident memory on a CPU). "
                    if known
                    else "Memory is not shown, as some runs did not record it. "
                )
                + (
                    "All runs used the same kind of machine."
                    if machines == 1
                    else f"The runs used {machines} machines or settings, so speeds and memory are not all comparable."
                )
                + plotted.omission(plotted.main_rows)
            ),
            alt=f"Samples per second and {format_heading(plotted.metric)}: "
            + ", ".join(
                f"{row.name} {row.line.speed.value:.4g} and {format_value(_mean(row), plotted.metric)}" for row in rows
            ),
            spec=side_by_side([_bubble_panel(table, rows, plotted.metric, known)]),
        )
    ]


def _bubble_panel(table: pd.DataFrame, rows: Sequence[PlotRow], metric: str, with_memory: bool) -> alt.LayerChart:
    channels = row_channels({row.name: row.look for row in rows})
    speeds = table["speed"]
    log = bool(speeds.max() > 10 * speeds.min() > 0)
    domain = axis_bounds(
        table["mean"], log=False, within=metric_bounds(metric), room=0.2
    )  # for the size of the markers
    across = alt.Scale(type="log" if log else "linear", domain=list(axis_bounds(speeds, log)), nice=False, zero=False)
    scale = alt.Scale(domain=list(domain), nice=False, zero=False)
    axis = alt.Axis(format=axis_format(metric) or alt.Undefined)
    base = alt.Chart(inline(table)).encode(
        x=alt.X("speed:Q", scale=across, axis=alt.Axis(format="~s", tickCount=6)).title("samples per second, training")
    )
    at = alt.Y("mean:Q", scale=scale, axis=axis).title(format_heading(metric))
    spans = (
        base.transform_filter("isValid(datum.low)")
        .mark_rule(clip=True, opacity=0.5)
        .encode(y=alt.Y("low:Q", scale=scale), y2=alt.Y2("high:Q"), color=channels["color"])
    )
    legend = alt.Legend(
        title="peak memory, GB", tickCount=3, symbolFillColor="#808080", symbolStrokeWidth=0, format="~g"
    )
    size = alt.Size("memory:Q", scale=alt.Scale(range=BUBBLES, zero=True), legend=legend)
    fields = ("row:N", "speed:Q", "mean:Q", "low:Q", "high:Q", "memory:Q")
    bubbles = base.mark_point(filled=True, opacity=0.75).encode(
        y=at,
        color=channels["color"],
        shape=channels["shape"],
        size=size if with_memory else alt.value(160),
        tooltip=list(map(alt.Tooltip, fields)),
    )
    return alt.LayerChart(layer=[spans, bubbles], width=3 * WIDTH, height=HIGH)


def _dots(
    table: pd.DataFrame, rows: Sequence[PlotRow], *, domain: tuple[float, float], numbers: str
) -> list[alt.Chart]:
    """A dot with interval and label for each row of the table (columns row, label, value, low, high)."""
    channels = row_channels({row.name: row.look for row in rows}, with_legend=False)
    scale = alt.Scale(domain=list(domain), nice=False, zero=False)
    base = alt.Chart(inline(table)).encode(y=_line_of(table[ROW]))
    spans = (
        base.transform_filter("isValid(datum.low)")
        .mark_rule(clip=True, strokeWidth=2.5, opacity=0.6, yOffset=6)
        .encode(x=alt.X("low:Q", scale=scale), x2=alt.X2("high:Q"), color=channels["color"])
    )
    axis = alt.Axis(format=numbers or alt.Undefined, tickCount=6)
    dots = base.mark_point(filled=True, opacity=1, size=80, yOffset=6).encode(
        x=alt.X("value:Q", scale=scale, axis=axis).title(None),
        color=channels["color"],
        shape=channels["shape"],
        tooltip=list(map(alt.Tooltip, ("label:N", "value:Q", "low:Q", "high:Q"))),
    )
    names = base.mark_text(align="left", baseline="bottom", dy=-1).encode(x=alt.value(5), text=alt.Text("label:N"))
    return [spans, dots, names]


def _ticks(runs: pd.DataFrame, rows: Sequence[PlotRow], domain: tuple[float, float]) -> alt.Chart:
    """A small stroke for every run (columns row, value, seed)."""
    channels = row_channels({row.name: row.look for row in rows}, with_legend=False)
    ticks: alt.Chart = (
        alt.Chart(inline(runs))
        .mark_tick(thickness=1.2, size=12, opacity=0.55, yOffset=6)
        .encode(
            x=alt.X("value:Q", scale=alt.Scale(domain=list(domain), nice=False, zero=False)),
            y=_line_of(pd.Series([row.name for row in rows])),
            color=channels["color"],
            tooltip=list(map(alt.Tooltip, (f"{ROW}:N", "seed:N", "value:Q"))),
        )
    )
    return ticks


def _rule(value: float, domain: tuple[float, float], dash: tuple[int, int] = (4, 4)) -> alt.Chart:
    """A dashed vertical line across all rows."""
    scale = alt.Scale(domain=list(domain), nice=False, zero=False)
    rule: alt.Chart = (
        alt.Chart(inline(pd.DataFrame({"at": [value]})))
        .mark_rule(strokeDash=list(dash), color="#767676")
        .encode(x=alt.X("at:Q", scale=scale))
    )
    return rule


def _stacked(layers: Sequence[alt.Chart], count: int, title: str, width: int) -> alt.LayerChart:
    return alt.LayerChart(layer=list(layers), width=width, height=ROW_PIXELS * count + 8, title=title)


def _line_of(names: pd.Series) -> alt.Y:
    """One row below the other, in this order."""
    return alt.Y(f"{ROW}:N", axis=None, scale=alt.Scale(domain=list(names)))


def _interval_columns(rows: Sequence[PlotRow]) -> dict[str, list[float]]:
    """The columns low and high; NaN for a row without an interval."""
    intervals = [row.line.interval for row in rows]
    return {name: [getattr(one, name) if one else np.nan for one in intervals] for name in ("low", "high")}


def _mean(row: PlotRow) -> float:
    return float(row.line.mean or 0.0)


def _count(row: PlotRow) -> str:
    done = len(row.line.values)
    return f"n = {done}" if done == row.line.planned else f"n = {done} of {row.line.planned}"


def _memory(row: PlotRow) -> float:
    known = [value for run in row.runs if (value := run.number("peak_memory_gb")) is not None]
    return median(known) if known else np.nan
