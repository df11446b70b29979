"""Figures of a benchmark: speed and memory against the number of tokens."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from sliceformer_lab.commands.benchmark.rows import WITHOUT_KERNELS, SpeedRow
from sliceformer_lab.measures.plots import COLOURS, MARKERS

PASSES = {"inference": "forward", "training": "forward + backward"}
LINES = {"custom": "-", "sdpa": "-", "plain": "--", "compiled": "-."}
WIDEST = 4  # panels in a row

Value = Callable[[SpeedRow], float | None]
Style = Mapping[str, Any]


def draw(rows: Sequence[SpeedRow], folder: Path, note: str) -> list[Path]:
    """Write speed.png and memory.png, each with `note`; returns the paths."""
    ran = [row for row in rows if row.status == "ok"]
    if not ran:
        return []
    styles = _styles(ran)
    speed = [(f"{w}, {PASSES[m]}", _rows_of(ran, w, m), _per_token) for w in _workloads(ran) for m in _modes(ran)]
    memory = [
        (f"{workload}: {title}", _rows_of(ran, workload, _modes(ran)[-1]), value)
        for workload in _workloads(ran)
        for title, value in (("peak, bytes a value", _peak), ("saved for backward, bytes a value", _saved))
    ]
    figures = {
        "speed.png": _panels(speed, styles, "microseconds a token", note),
        "memory.png": _panels(memory, styles, "bytes / (B N C)", note),
    }
    paths = []
    for name, figure in figures.items():
        if figure is not None:
            figure.savefig(folder / name, dpi=110)
            paths.append(folder / name)
    return paths


def _panels(
    panels: Sequence[tuple[str, Sequence[SpeedRow], Value]], styles: Mapping[str, Style], unit: str, note: str
) -> Figure | None:
    """Panels with curves over lengths, or bars if there is one length; None without data."""
    full = [(title, rows, value) for title, rows, value in panels if any(value(row) for row in rows)]
    if not full:
        return None
    columns = min(len(full), WIDEST)
    lines = -(-len(full) // columns)
    figure = Figure(figsize=(max(5.4 * columns, 9), 4.4 * lines + 1.2), layout="constrained")
    grid = figure.subplots(lines, columns, squeeze=False).ravel()
    shown: dict[str, None] = {}
    for axes, (title, rows, value) in zip(grid, full, strict=False):
        if len({row.tokens for row in rows}) > 1:
            shown |= _curves(axes, rows, value, styles)
            axes.set_ylabel(unit)
        else:
            _bars(axes, rows, value, styles, unit)
        axes.set_title(title, fontsize=10)
    for axes in grid[len(full) :]:
        axes.remove()
    if shown:
        handles = [Line2D([], [], label=name, **styles[name]) for name in shown]
        figure.legend(handles=handles, loc="outside lower center", ncols=min(len(shown), 5), frameon=False)
    figure.suptitle(note, fontsize=9)
    return figure


def _curves(axes: Axes, rows: Sequence[SpeedRow], value: Value, styles: Mapping[str, Style]) -> dict[str, None]:
    """Plot a line for each variant on logarithmic axes; returns the names of the lines."""
    shown: dict[str, None] = {}
    for name in dict.fromkeys(row.name for row in rows):
        points = sorted((row.tokens, found) for row in rows if row.name == name and (found := value(row)))
        if points:
            axes.plot(*zip(*points, strict=True), **styles[name])
            shown[name] = None
    lengths = sorted({row.tokens for row in rows})
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(lengths, [_length(n) for n in lengths], fontsize=8)
    axes.set_xlabel("tokens N")
    axes.grid(alpha=0.3)
    return shown


def _bars(axes: Axes, rows: Sequence[SpeedRow], value: Value, styles: Mapping[str, Style], unit: str) -> None:
    """Plot a bar for each variant, the shortest on top."""
    bars = sorted(((found, row.name) for row in rows if (found := value(row))), reverse=True)
    places = np.arange(len(bars))
    axes.barh(places, [found for found, _ in bars], color=[styles[name]["color"] for _, name in bars])
    for place, (found, _) in zip(places, bars, strict=True):
        axes.annotate(f" {found:.3g}", (found, place), va="center", fontsize=8)
    axes.set_yticks(places, [name for _, name in bars], fontsize=8)
    axes.set_xlabel(f"{unit}, N = {_length(rows[0].tokens)}")
    axes.margins(x=0.15)
    axes.grid(alpha=0.3, axis="x")
    axes.set_axisbelow(True)


def _styles(rows: Sequence[SpeedRow]) -> dict[str, Style]:
    """Colour and marker show the method; solid lines and filled markers show kernels of torch and ours."""
    methods = list(dict.fromkeys(row.method for row in rows))
    styles: dict[str, Style] = {}
    for row in rows:
        place = methods.index(row.method)
        styles[row.name] = {
            "color": COLOURS[place % len(COLOURS)],
            "marker": MARKERS[(place + place // len(COLOURS)) % len(MARKERS)],
            "linestyle": ":" if row.way == "reference" else LINES[row.engine or "plain"],
            "markersize": 5,
            **({"markerfacecolor": "white"} if row.engine in WITHOUT_KERNELS else {}),
        }
    return styles


def _per_token(row: SpeedRow) -> float | None:
    return None if row.seconds is None else 1e6 * row.seconds / (row.batch * row.tokens)


def _peak(row: SpeedRow) -> float | None:
    return None if row.peak_bytes is None else row.peak_bytes / (row.batch * row.tokens * row.channels)


def _saved(row: SpeedRow) -> float | None:
    return row.saved_bytes_per_element


def _rows_of(rows: Sequence[SpeedRow], workload: str, mode: str) -> list[SpeedRow]:
    return [row for row in rows if (row.workload, row.mode) == (workload, mode)]


def _workloads(rows: Sequence[SpeedRow]) -> list[str]:
    return list(dict.fromkeys(row.workload for row in rows))


def _modes(rows: Sequence[SpeedRow]) -> list[str]:
    return [mode for mode in PASSES if any(row.mode == mode for row in rows)]


def _length(tokens: int) -> str:
    return f"{tokens // 1024}K" if tokens % 1024 == 0 else str(tokens)
