"""The pictures of a comparison: paired differences with intervals, and validation score over learning rate."""

from __future__ import annotations

from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sliceformer_lab.commands.compare.compare_options import AXIS_NAMES, Axis
from sliceformer_lab.commands.compare.results import Comparison
from sliceformer_lab.commands.compare.sentences import unit
from sliceformer_lab.commands.compare.verdicts import Finding
from sliceformer_lab.measures.metric_scale import factor_of, format_heading
from sliceformer_lab.measures.plots import COLOURS, MARKERS, save_figure

WIDTH = 4.6  # inches of a panel


def draw_differences(found: Comparison, path: Path) -> None:
    """Draw a panel for each axis: the difference of the subject from each row, with interval, seeds and margin."""
    count, rows = len(found.results), len(found.options.others)
    figure = Figure(figsize=(1.8 + WIDTH * count, 1.7 + 0.55 * rows), layout="constrained")
    panels = figure.subplots(1, count, squeeze=False, sharey=True)[0]
    for axes, result in zip(panels, found.results, strict=True):
        _draw_axis(axes, found, result.axis)
    panels[0].set_yticks(range(rows), found.options.others)
    panels[0].set_ylim(rows - 0.4, -0.6)
    verdicts = panels[-1].twinx()  # its tick labels name the verdicts at the right
    verdicts.set_ylim(rows - 0.4, -0.6)
    verdicts.set_yticks(range(rows), [one.verdict or "no verdict" for one in found.outcomes])
    verdicts.tick_params(length=0)
    figure.supxlabel("\n".join(_format_legend(found)), fontsize=9)
    save_figure(figure, path)


def _format_legend(found: Comparison) -> list[str]:
    """What the axis and the marks mean, in lines that fit below one panel or two."""
    subject = found.options.subject
    has_margin = any(one.margin for outcome in found.outcomes for one in outcome.findings.values())
    points = ", points" if unit(found.metric) == "points" else ""
    parts = [
        f"difference between {subject} and the row in test {found.goal.monitor}{points}",
        f"right of 0: {subject} is better",
        "dot: mean; line: 95 % over seeds and examples",
        f"small bars: single seeds{'; grey: margin of equivalence' if has_margin else ''}",
    ]
    return [f"{parts[0]}; {parts[1]}", f"{parts[2]}; {parts[3]}"] if len(found.results) > 1 else parts


def _draw_axis(axes: Axes, found: Comparison, axis: Axis) -> None:
    factor, rows = factor_of(found.metric), list(found.tuning.trials)  # a row has its colour of the learning rates
    axes.axvline(0, color="0.3", linewidth=1)
    for place, one in enumerate(found.outcomes):
        if axis in one.findings:
            _draw_finding(axes, place, one.findings[axis], factor, COLOURS[rows.index(one.against) % len(COLOURS)])
    axes.set_title(AXIS_NAMES[axis])
    axes.grid(axis="x", alpha=0.3)


def _draw_finding(axes: Axes, place: int, one: Finding, factor: float, colour: str) -> None:
    if one.margin is not None:
        axes.fill_betweenx([place - 0.45, place + 0.45], -factor * one.margin, factor * one.margin, color="0.9", lw=0)
    axes.plot([factor * one.interval.low, factor * one.interval.high], [place, place], color=colour, lw=2.5)
    seeds = [factor * value for value in one.differences.values()]
    axes.plot(seeds, [place + 0.24] * len(seeds), "|", color=colour, markersize=8, alpha=0.7)
    axes.plot(factor * one.estimate.mean, place, "o", color=colour, markersize=8, markeredgecolor="white")


def draw_learning_rates(found: Comparison, path: Path) -> None:
    """Draw the mean validation score of every trial over its learning rate; a ring marks the chosen one."""
    metric, tuning = f"val/{found.goal.monitor}", found.tuning
    factor = factor_of(metric)
    figure = Figure(figsize=(8.2, 4.6), layout="constrained")
    axes = figure.subplots()
    line = "none" if tuning.points.random else "-"  # points that differ in more than the rate are not joined
    for place, (name, trials) in enumerate(tuning.trials.items()):
        colour, marker = COLOURS[place % len(COLOURS)], MARKERS[place % len(MARKERS)]
        ordered = sorted(trials, key=lambda trial: trial.point.rate)
        rates, values = [one.point.rate for one in ordered], [factor * one.mean for one in ordered]
        axes.plot(rates, values, line, color=colour, marker=marker, markersize=5, lw=1.2, label=name)
        if (best := tuning.chosen[name]) is not None:
            where = best.point.rate, factor * best.mean
            axes.plot(*where, "o", markersize=12, markerfacecolor="none", markeredgecolor=colour, markeredgewidth=1.4)
    axes.set_xscale("log")
    axes.set(
        xlabel="learning rate (ring: chosen)",
        ylabel=format_heading(f"validation {found.goal.monitor}"),
        title=f"{found.task}: trials, mean over their seeds",
    )
    axes.grid(alpha=0.3)
    figure.legend(loc="outside lower center", ncols=min(4, len(tuning.trials)), frameon=False)
    save_figure(figure, path)
