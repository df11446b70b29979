"""The pictures of a comparison: paired differences with intervals, and validation score over learning rate."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from matplotlib.axes import Axes

from sliceformer_lab.commands.compare.compare_options import AXIS_NAMES, Axis
from sliceformer_lab.commands.compare.results import Comparison
from sliceformer_lab.commands.compare.sentences import unit_of
from sliceformer_lab.commands.compare.verdicts import Finding
from sliceformer_lab.measures.drawing import Chart, Look, legend_of, looks_of, save_chart
from sliceformer_lab.measures.line_panels import write_plain_numbers
from sliceformer_lab.measures.metric_scale import factor_of, format_heading
from sliceformer_lab.runs.controls import is_control

PANEL_INCHES, ROW_INCHES = 5.0, 0.5  # the width of a panel, and the height of a row


def draw_differences(found: Comparison, path: Path) -> None:
    """Draw a panel for each axis: the difference of the subject from each row, with interval, seeds and margin."""
    axes_shown = [result.axis for result in found.results]
    chart = Chart(
        panels=[partial(_draw_axis, found=found, axis=axis) for axis in axes_shown],
        heading=_describe_marks(found),
        size=(PANEL_INCHES + 1.0, 0.8 + ROW_INCHES * len(found.options.others)),
    )
    save_chart(chart, path)


def _describe_marks(found: Comparison) -> str:
    """What the axis and the marks mean."""
    subject = found.options.subject
    has_margin = any(one.margin for outcome in found.outcomes for one in outcome.findings.values())
    points = ", points" if unit_of(found.metric) == "points" else ""
    return (
        f"difference between {subject} and the row in test {found.goal.monitor}{points}\n"
        f"right of 0: {subject} is better; dot: mean; line: 95 % over seeds and examples; "
        f"small bars: single seeds{'; grey: margin of equivalence' if has_margin else ''}"
    )


def _draw_axis(axes: Axes, found: Comparison, axis: Axis) -> None:
    """One axis of a comparison: rows at the left, their verdicts at the right."""
    factor, looks, others = factor_of(found.metric), _looks_of_rows(found), found.options.others
    axes.axvline(0, color="0.3", linewidth=1)
    for place, one in enumerate(found.outcomes):
        if axis in one.findings:
            _draw_finding(axes, place, one.findings[axis], factor, looks[one.against].colour)
    axes.set(title=AXIS_NAMES[axis], ylim=(len(others) - 0.4, -0.6))
    axes.set_yticks(range(len(others)), others)
    axes.grid(visible=False, axis="y")
    verdicts = axes.twinx()  # its tick labels name the verdicts
    verdicts.set_ylim(axes.get_ylim())
    verdicts.set_yticks(range(len(others)), [one.verdict or "no verdict" for one in found.outcomes])
    verdicts.tick_params(length=0)
    verdicts.grid(visible=False)


def _looks_of_rows(found: Comparison) -> dict[str, Look]:
    return looks_of({name: is_control(name) for name in found.tuning.trials})


def _draw_finding(axes: Axes, place: int, one: Finding, factor: float, colour: str) -> None:
    if one.margin is not None:
        axes.fill_betweenx([place - 0.45, place + 0.45], -factor * one.margin, factor * one.margin, color="0.9", lw=0)
    axes.plot([factor * one.interval.low, factor * one.interval.high], [place, place], color=colour, lw=2.5)
    seeds = [factor * value for value in one.differences.values()]
    axes.plot(seeds, [place + 0.24] * len(seeds), "|", color=colour, markersize=8, alpha=0.7)
    axes.plot(factor * one.estimate.mean, place, "o", color=colour, markersize=8, markeredgecolor="white")


def draw_learning_rates(found: Comparison, path: Path) -> None:
    """Draw the mean validation score of every trial over its learning rate; a ring marks the chosen one."""
    looks = _looks_of_rows(found)
    chart = Chart(
        panels=[partial(_draw_trials, found=found, looks=looks)],
        legend=legend_of(looks, lines=not found.tuning.points.random),
        size=(8.2, 4.0),
    )
    save_chart(chart, path)


def _draw_trials(axes: Axes, found: Comparison, looks: dict[str, Look]) -> None:
    factor = factor_of(f"val/{found.goal.monitor}")
    for name, trials in found.tuning.trials.items():
        look = looks[name]
        line = "none" if found.tuning.points.random else look.line  # such points differ in more than the rate
        ordered = sorted(trials, key=lambda trial: trial.point.rate)
        rates, values = [one.point.rate for one in ordered], [factor * one.mean for one in ordered]
        axes.plot(rates, values, linestyle=line, color=look.colour, marker=look.marker, markersize=5, lw=1.2)
        if (best := found.tuning.chosen[name]) is not None:
            where = best.point.rate, factor * best.mean
            axes.plot(*where, "o", markersize=12, mfc="none", markeredgecolor=look.colour, markeredgewidth=1.4)
    axes.set_xscale("log")
    write_plain_numbers(axes.xaxis, axes.get_xlim())
    axes.set(
        xlabel="learning rate (ring: chosen)",
        ylabel=format_heading(f"validation {found.goal.monitor}"),
        title=f"{found.task}: trials, mean over their seeds",
    )
