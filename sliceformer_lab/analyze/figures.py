"""How the figures of all analyses look: one style for each attention, controls apart, a legend below the panels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import cycle
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from sliceformer_lab.analysis.plots import COLOURS, MARKERS

GREYS = ("0.35", "0.5", "0.62", "0.72")
CONTROL_MARKERS = "1234"
CHECKPOINT_TITLES = {"init": "untrained", "best": "trained", "last": "trained, last epoch"}

Style = dict[str, Any]


def styles(table: pd.DataFrame) -> dict[str, Style]:
    """Line styles by attention, for the columns `attention`, `control` and `checkpoint` of a table.

    Controls are grey and broken; one that has no run says that it is untrained.
    """
    found: dict[str, Style] = {}
    looks = zip(cycle(COLOURS), cycle(MARKERS), strict=False)
    grey_looks = zip(cycle(GREYS), cycle(CONTROL_MARKERS), strict=False)
    for attention, rows in table.groupby("attention", sort=False):
        label = str(attention)
        if rows["control"].any():
            colour, marker = next(grey_looks)
            untrained = " only untrained" if (rows["run"] == "").all() else ""
            found[label] = {
                "color": colour,
                "marker": marker,
                "linestyle": "--",
                "label": f"{label} (control{untrained})",
            }
        else:
            colour, marker = next(looks)
            num_before = sum(style["linestyle"] != "--" for style in found.values())
            dashes = "-" if num_before < len(COLOURS) else ":"  # more attentions than colours
            found[label] = {"color": colour, "marker": marker, "linestyle": dashes, "label": label}
    return found


def panels(rows: int, columns: int, *, width: float = 3.1, height: float = 2.7) -> tuple[Figure, NDArray[Any]]:
    """A figure and its axes (rows, columns), each panel so many inches."""
    figure = Figure(figsize=(max(width * columns, 7), height * rows + 1.2), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, sharex="col")


def line_with_band(
    axes: Axes, x: NDArray[Any], mean: NDArray[np.float64], spread: NDArray[np.float64], style: Mapping[str, Any]
) -> None:
    """A line and the band of `spread` on either side of it; NaN in `spread` is no band."""
    axes.plot(x, mean, markersize=4, linewidth=1.3, **style)
    if np.isfinite(spread).any():
        low, high = mean - spread, mean + spread
        axes.fill_between(x, low, high, color=style["color"], alpha=0.15, linewidth=0)


def whole_numbers(axes: Axes) -> None:
    """Ticks at integers along x."""
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))


def legend_below(figure: Figure, used: Iterable[Style], columns: int = 5) -> None:
    """One legend for all panels."""
    handles = [Line2D([], [], markersize=4, linewidth=1.3, **style) for style in used]
    figure.legend(handles=handles, loc="outside lower center", ncols=columns, frameon=False, fontsize=9)
