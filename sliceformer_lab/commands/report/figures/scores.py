"""Figures of scores, and of score against speed and memory."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import PercentFormatter

from sliceformer_lab.commands.report.figures.plot_rows import PageFigure, PlotRow, PlotTable, select_rows
from sliceformer_lab.commands.report.lines import machine
from sliceformer_lab.commands.report.reference_rows import ReferenceRow, references_of
from sliceformer_lab.measures.drawing import MUTED, Panel, legend_of
from sliceformer_lab.measures.line_panels import axis_bounds, value_axis, write_plain_numbers
from sliceformer_lab.measures.metric_scale import (
    PERCENT,
    factor_of,
    format_heading,
    format_value,
    less_is_better,
    metric_bounds,
)
from sliceformer_lab.measures.statistics import Interval

MAX_FIGURE_ROWS = 40  # of a figure
WIDTH, HEIGHT, ROW_HEIGHT = 6.2, 3.6, 0.36  # inches of a panel, and of a row of scores
CHANCE, REFERENCE = ("--", "dashed line"), (":", "dotted line")
MAX_MARKER_AREA, USUAL_MARKER_AREA = 420.0, 90.0  # square points: of most memory, of unknown memory
BEYOND = "An arrow head marks an interval that goes on beyond the panel."

Mark = tuple[str, float]  # a line style, and where the line is


def score_figures(plotted: PlotTable) -> list[PageFigure]:
    """Scores, and score against speed; figures without data are left out."""
    return [*_draw_scores(plotted), *_draw_bubbles(plotted)]


def _draw_scores(plotted: PlotTable) -> list[PageFigure]:
    """Mean, interval and single runs of each row, best mean first."""
    metric = plotted.metric
    rows = select_rows([row for row in plotted.rows if row.line.mean is not None], MAX_FIGURE_ROWS)
    if not rows:
        return []
    rows = sorted(rows, key=_mean_of, reverse=not less_is_better(metric))
    best = next(iter(references_of((run for row in rows for run in row.runs), metric)), None)
    domain = _choose_domain(rows, metric, best)
    marks, remark = _list_marks(rows, metric, best, domain)
    ways = sorted({row.line.interval.how for row in rows if row.line.interval})
    return [
        PageFigure(
            name=f"scores{plotted.suffix}",
            title="Scores",
            caption=(
                f"{metric}: mean over successful runs with its 95 % interval "
                f"({' or '.join(ways) or 'no row has one'}); each stroke is a run. "
                f"{BEYOND} Rows with overlapping intervals can still differ: the table compares them on equal "
                f"seeds.{remark}{plotted.omission(rows)}"
            ),
            alt=f"{format_heading(metric)}: "
            + ", ".join(f"{row.name} {format_value(_mean_of(row), metric)}" for row in rows),
            panels=[_score_panel(rows, metric, domain, marks)],
            size=(WIDTH, ROW_HEIGHT * len(rows) + 0.6),
        )
    ]


def _choose_domain(rows: Sequence[PlotRow], metric: str, best: ReferenceRow | None) -> tuple[float, float]:
    """The bounds of the scores: all runs, intervals up to half of their range away, a reference better than a run."""
    values = pd.Series([value for row in rows for value in row.line.values.values()])
    room = 0.5 * (values.max() - values.min())
    ends = [end for row in rows if (one := row.line.interval) for end in (one.low, one.high)]
    shown = [*values, *np.clip(ends, values.min() - room, values.max() + room)]
    sign = -1 if less_is_better(metric) else 1
    if best is not None and (sign * (best.value - values) > 0).any():
        shown.append(best.value)
    return axis_bounds(pd.Series(shown), log=False, within=metric_bounds(metric))


def _list_marks(
    rows: Sequence[PlotRow], metric: str, best: ReferenceRow | None, domain: tuple[float, float]
) -> tuple[list[Mark], str]:
    """The lines of chance and of the best reference that are inside the panel, and sentences on both."""
    chance = rows[0].line.chance  # that of the table
    found = [] if best is None else [(f"The reference {best.name} has", best.value, REFERENCE)]
    if chance is not None:
        found.insert(0, ("Chance, the best constant for the test set, is", chance, CHANCE))
    marks, remark = [], ""
    for words, value, (line, name) in found:
        inside = domain[0] <= value <= domain[1]
        marks += [(line, value)] if inside else []
        score = f"{format_value(value, metric)}{' %' if factor_of(metric) == PERCENT else ''}"
        remark += f" {words} {score} ({name if inside else 'outside the panel'})."
    return marks, remark


def _score_panel(rows: Sequence[PlotRow], metric: str, domain: tuple[float, float], marks: Sequence[Mark]) -> Panel:
    """One row below the other: its name, a stroke for every run, its mean and its interval."""

    def draw(axes: Axes) -> None:
        for place, row in enumerate(rows):
            name, values, colour = f"{row.name}, {_format_count(row)}", list(row.line.values.values()), row.look.colour
            across = axes.get_yaxis_transform()
            axes.text(0.008, place - 0.2, name, transform=across, va="center", in_layout=False)
            axes.plot(values, [place + 0.2] * len(values), "|", color=colour, markersize=7, alpha=0.55)
            if row.line.interval is not None:
                ends = row.line.interval.low, row.line.interval.high
                axes.plot(ends, [place + 0.2] * 2, color=colour, linewidth=2, alpha=0.6)
                for edge, head in _find_hidden_ends(row.line.interval, domain, "<>"):
                    axes.plot(edge, place + 0.2, head, color=colour, markersize=6, clip_on=False)
            axes.plot(_mean_of(row), place + 0.2, row.look.marker, color=colour, markersize=6.5)
        for line, value in marks:
            axes.axvline(value, color=MUTED, linestyle=line, linewidth=1)
        axes.set(xlim=domain, ylim=(len(rows) - 0.4, -0.5), yticks=[], title=format_heading(metric))
        if factor_of(metric) == PERCENT:
            axes.xaxis.set_major_formatter(PercentFormatter(1))

    return draw


def _find_hidden_ends(interval: Interval, domain: tuple[float, float], heads: str) -> list[tuple[float, str]]:
    """The edges of a panel that an interval passes, with their arrow heads: of `heads`, the lower one first."""
    passes = interval.low < domain[0], interval.high > domain[1]
    return [(edge, head) for edge, head, is_passed in zip(domain, heads, passes, strict=True) if is_passed]


def _draw_bubbles(plotted: PlotTable) -> list[PageFigure]:
    """Score against training speed; the area of a marker shows peak memory."""
    rows = [row for row in plotted.main_rows if row.line.mean is not None and row.line.speed.value is not None]
    if not rows:
        return []
    memory = np.array([_median_memory(row) for row in rows])
    known = bool(np.isfinite(memory).all())
    area = MAX_MARKER_AREA / memory.max() if known else USUAL_MARKER_AREA  # of a marker, for a gigabyte or for all
    sizes = [0.25, 1.0] if known else []  # of the most memory, in the legend
    machines = len({machine(run) for row in rows for run in row.runs})
    return [
        PageFigure(
            name=f"score_against_speed{plotted.suffix}",
            title="Score against speed and memory",
            caption=(
                f"{plotted.metric} with its 95 % interval against samples per second in training (median over the "
                f"runs); other jobs on the machine slow a run down. {BEYOND} "
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
                f"{row.name} {row.line.speed.value:.4g} and {format_value(_mean_of(row), plotted.metric)}"
                for row in rows
            ),
            panels=[_bubble_panel(rows, plotted.metric, area * (memory if known else np.ones(len(rows))))],
            legend=[
                *legend_of({row.name: row.look for row in rows}, lines=False),
                *(_draw_bubble(share * memory.max(), share * MAX_MARKER_AREA) for share in sizes),
            ],
            size=(WIDTH, HEIGHT),
        )
    ]


def _draw_bubble(memory: float, area: float) -> Line2D:
    label, side = f"{memory:.2g} GB at peak", np.sqrt(area)
    return Line2D([], [], color=MUTED, linestyle="none", marker="o", markersize=side, markeredgewidth=0, label=label)


def _bubble_panel(rows: Sequence[PlotRow], metric: str, areas: Sequence[float] | np.ndarray) -> Panel:
    """A marker for each row, of its area, at its speed and mean, with its interval."""
    speeds, means = pd.Series([row.line.speed.value or 0.0 for row in rows]), pd.Series([_mean_of(row) for row in rows])
    log = bool(speeds.max() > 10 * speeds.min() > 0)
    across = axis_bounds(speeds, log)
    domain = axis_bounds(means, log=False, within=metric_bounds(metric), room=0.2)  # for the size of the markers

    def draw(axes: Axes) -> None:
        for row, speed, mean, area in zip(rows, speeds, means, areas, strict=True):
            if row.line.interval is not None:
                ends = row.line.interval.low, row.line.interval.high
                axes.plot([speed] * 2, ends, color=row.look.colour, linewidth=1, alpha=0.5)
                for edge, head in _find_hidden_ends(row.line.interval, domain, "v^"):
                    axes.plot(speed, edge, head, color=row.look.colour, markersize=6, clip_on=False)
            axes.scatter(
                speed, mean, area, row.look.colour, marker=row.look.marker, alpha=0.75, linewidths=0, clip_on=False
            )
        axes.set(xlim=across, xlabel="samples per second, training", ylabel=format_heading(metric))
        value_axis(axes, domain, metric=metric)
        if log:
            axes.set_xscale("log")
            write_plain_numbers(axes.xaxis, across)

    return draw


def _mean_of(row: PlotRow) -> float:
    return float(row.line.mean or 0.0)


def _format_count(row: PlotRow) -> str:
    done = len(row.line.values)
    return f"n = {done}" if done == row.line.planned else f"n = {done} of {row.line.planned}"


def _median_memory(row: PlotRow) -> float:
    known = [value for run in row.runs if (value := run.summary.peak_memory_gb) is not None]
    return median(known) if known else np.nan
