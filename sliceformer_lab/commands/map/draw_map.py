"""The picture of a map: attentions by probes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.patches import Rectangle

from sliceformer_lab.commands.map.map_results import Map, Result
from sliceformer_lab.measures.drawing import INK, Chart, save_chart

SHADES = mpl.colormaps["YlGnBu"]
MIN_LOW_ROWS = 30  # attentions, from which on their rows are low
DARK = 0.6  # from this share on, white text is easier to read
BAG, CHANCE = "bag level", "chance"


def draw_map(found: Map, path: Path, groups: Mapping[str, Sequence[str]] | None = None) -> None:
    """Draw a cell for each attention and probe: mean score, and the steps to .99; the floors at the bottom.

    `groups` are all attentions under titles; without it, they are in the order of the options. From MIN_LOW_ROWS
    attentions on, rows are low, and the steps are beside the score instead of below it.
    """
    options = found.options
    is_low = len(options.attentions) >= MIN_LOW_ROWS
    rows, titles = _compute_heights(groups or {"": options.attentions})
    last = rows[CHANCE]
    width, height = max(6.0, 2.6 + 1.0 * len(options.probes)), 1.6 + (0.3 if is_low else 0.55) * (last + 0.8)

    def draw(axes: Axes) -> None:
        for column, (probe, floors) in enumerate(zip(options.probes, found.floors, strict=True)):
            for attention in options.attentions:
                _draw_result(axes, column, rows[attention], found.results[attention, probe], is_low)
            bag, chance = (floors.bag_level, floors.chance) if floors else (None, None)
            share = None if bag is None or chance is None else (bag - chance) / (1 - chance)
            _draw_cell(axes, column, rows[BAG], share, format_share(bag), "", is_low)
            _draw_cell(axes, column, last, None if chance is None else 0.0, format_share(chance), "", is_low)
        for title, row in titles.items():
            axes.text(-0.48, row, title, ha="left", va="center", style="italic")
        _number_axes(axes, rows, options.probes, options.seeds)
        scale = ScalarMappable(Normalize(0, 1), SHADES)
        axes.figure.colorbar(scale, ax=axes, label="(score - chance) / (1 - chance)", shrink=0.4 if is_low else 0.8)

    save_chart(Chart(panels=[draw], size=(width, height)), path)


def _number_axes(axes: Axes, rows: Mapping[str, float], probes: Sequence[str], seeds: int) -> None:
    axes.set(xlim=(-0.5, len(probes) - 0.5), ylim=(rows[CHANCE] + 0.5, -0.5))
    axes.set_xticks(range(len(probes)), probes)
    axes.set_yticks(list(rows.values()), list(rows))
    axes.xaxis.tick_top()
    axes.tick_params(length=0, labelcolor=INK, labelsize=10)
    axes.spines[:].set_visible(False)
    axes.grid(visible=False)
    over = "one seed" if seeds == 1 else f"mean over {seeds} seeds"
    axes.set_xlabel(
        f"test accuracy, {over}; small: steps to .99, or how many seeds reached it\n"
        "*: not all seeds yet; †: a run diverged and counts as chance\n"
        "hatched: cannot run, or diverged at every rate; empty: not run yet"
    )


def _compute_heights(groups: Mapping[str, Sequence[str]]) -> tuple[dict[str, float], dict[str, float]]:
    """The heights of rows and titles, in rows from the top."""
    rows, titles, height = {}, {}, 0.0
    for title, attentions in groups.items():
        if title:
            titles[title] = height
            height += 0.9
        for attention in attentions:
            rows[attention] = height
            height += 1
    return rows | {BAG: height + 0.2, CHANCE: height + 1.2}, titles


def format_share(score: float | None) -> str:
    """A score in three digits: .107, 1.00, – if there is none."""
    if score is None:
        return "–"
    return "1.00" if score >= 0.9995 else f"{score:.3f}".removeprefix("0")


def steps_shown(result: Result) -> str:
    """The steps to .99, or how many seeds reached it if only some did."""
    reached = [run for run in result.reporting if run.value is not None and run.steps is not None]
    if result.steps is not None:
        return f"{result.steps:g}"
    return f"{len(reached)} of {len(result.scores)}" if reached else ""


def _draw_result(axes: Axes, column: int, row: float, result: Result, is_low: bool) -> None:
    if result.mean is None:
        hatch = "///" if result.reason is not None else None
        box = Rectangle((column - 0.48, row - 0.46), 0.96, 0.92, facecolor="white", edgecolor="0.75", hatch=hatch)
        axes.add_patch(box)
        return
    marks = ("*" if len(result.scores) < result.cell.options.seeds else "") + ("†" if result.diverged else "")
    _draw_cell(axes, column, row, result.share, format_share(result.mean) + marks, steps_shown(result), is_low)


def _draw_cell(axes: Axes, column: int, row: float, share: float | None, number: str, steps: str, is_low: bool) -> None:
    level = min(1.0, max(0.0, share or 0.0))
    face = "white" if share is None else SHADES(level)
    axes.add_patch(Rectangle((column - 0.48, row - 0.46), 0.96, 0.92, facecolor=face, edgecolor="0.75", linewidth=0.5))
    colour = "white" if level > DARK else "black"
    if is_low:
        places = (column - 0.42, row, "left"), (column + 0.44, row, "right")
    else:
        places = (column, row - (0.1 if steps else 0), "center"), (column, row + 0.24, "center")
    for (x, y, side), text, size in zip(places, (number, steps), (10, 7), strict=True):
        axes.text(x, y, text, ha=side, va="center", color=colour, fontsize=size)
