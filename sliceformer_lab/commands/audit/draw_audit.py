"""The pictures of an audit: paired differences with intervals, and validation score over learning rate."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sliceformer_lab.commands.audit.audit_options import SHOWN
from sliceformer_lab.commands.audit.audit_results import Audit, AxisResult
from sliceformer_lab.commands.audit.sentences import unit
from sliceformer_lab.commands.audit.verdicts import Outcome
from sliceformer_lab.measures.metric_scale import factor_of, headed
from sliceformer_lab.measures.plots import COLOURS, MARKERS, save_figure

WIDTH = 4.6  # inches of a panel


def draw_differences(audit: Audit, path: Path) -> None:
    """Draw a panel for each axis: the difference of the subject from each row, with interval, seeds and margin."""
    count, rows = len(audit.results), len(audit.options.against)
    figure = Figure(figsize=(1.8 + WIDTH * count, 1.7 + 0.55 * rows), layout="constrained")
    panels = figure.subplots(1, count, squeeze=False, sharey=True)[0]
    for axes, result in zip(panels, audit.results, strict=True):
        _differences(axes, audit, result)
    panels[0].set_yticks(range(rows), audit.options.against)
    panels[0].set_ylim(rows - 0.4, -0.6)
    figure.supxlabel("\n".join(_legend(audit, wide=count > 1)), fontsize=9)
    save_figure(figure, path)


def _legend(audit: Audit, *, wide: bool) -> list[str]:
    """What the axis and the marks mean, in lines that fit below one panel or two."""
    subject, has_margin = audit.options.subject, any(one.margin for r in audit.results for one in r.outcomes)
    parts = [
        f"{subject} less the row, in {unit(audit.metric)} of test {audit.goal.monitor}",
        f"right of 0: {subject} is better",
        "dot: mean; thick: 95 % over seeds; thin: over test examples",
        f"small bars: single seeds{'; grey: margin of equivalence' if has_margin else ''}",
    ]
    return [f"{parts[0]}; {parts[1]}", f"{parts[2]}; {parts[3]}"] if wide else parts


def _differences(axes: Axes, audit: Audit, result: AxisResult) -> None:
    factor = factor_of(audit.metric)
    axes.axvline(0, color="0.3", linewidth=1)
    for place, one in enumerate(result.outcomes):
        _difference(axes, place, one, factor, COLOURS[place % len(COLOURS)])
    axes.set_title(SHOWN[result.axis])
    axes.grid(axis="x", alpha=0.3)
    verdicts = axes.twinx()  # its tick labels name the verdicts at the right
    verdicts.set_ylim(len(result.outcomes) - 0.4, -0.6)
    verdicts.set_yticks(range(len(result.outcomes)), [one.verdict or "no verdict" for one in result.outcomes])
    verdicts.tick_params(length=0)


def _difference(axes: Axes, place: int, one: Outcome, factor: float, colour: str) -> None:
    if one.margin is not None:
        axes.fill_betweenx([place - 0.45, place + 0.45], -factor * one.margin, factor * one.margin, color="0.9", lw=0)
    if one.mean is None:
        return
    for interval, width in ((one.over_examples, 1.2), (one.over_seeds, 4.0)):
        if interval is not None:
            axes.plot([factor * interval.low, factor * interval.high], [place, place], color=colour, lw=width)
    seeds = [factor * value for value in one.differences.values()]
    axes.plot(seeds, [place + 0.24] * len(seeds), "|", color=colour, markersize=8, alpha=0.7)
    axes.plot(factor * one.mean, place, "o", color=colour, markersize=8, markeredgecolor="white")


def draw_learning_rates(audit: Audit, path: Path) -> None:
    """Draw the mean validation score of every trial over its learning rate; a ring marks the chosen one."""
    metric, tuning = f"val/{audit.goal.monitor}", audit.tuning
    figure = Figure(figsize=(8.2, 4.6), layout="constrained")
    axes = figure.subplots()
    for place, (name, trials) in enumerate(tuning.trials.items()):
        look = COLOURS[place % len(COLOURS)], MARKERS[place % len(MARKERS)]
        ordered = sorted(trials, key=lambda trial: trial.point.rate)
        _curve(axes, [one.point.rate for one in ordered], [one.mean for one in ordered], metric, name, look)
        if (best := tuning.chosen[name]) is not None:
            where = best.point.rate, factor_of(metric) * best.mean
            axes.plot(*where, "o", markersize=12, markerfacecolor="none", markeredgecolor=look[0], markeredgewidth=1.4)
    axes.set_xscale("log")
    seeds = len(audit.options.tuning_seeds)
    axes.set(
        xlabel="learning rate (ring: chosen)",
        ylabel=headed(f"validation {audit.goal.monitor}"),
        title=f"{audit.task}: trials, mean over {seeds} tuning seed{'s' if seeds > 1 else ''}",
    )
    axes.grid(alpha=0.3)
    figure.legend(loc="outside lower center", ncols=min(4, len(tuning.trials)), frameon=False)
    save_figure(figure, path)


def _curve(
    axes: Axes, rates: Sequence[float], values: Sequence[float], metric: str, name: str, look: tuple[str, str]
) -> None:
    shown = [factor_of(metric) * value for value in values]
    axes.plot(rates, shown, color=look[0], marker=look[1], markersize=5, lw=1.2, label=name)
