"""Figures of a run, drawn without a display: singular spectra, collapse over depth, learning curves."""

from __future__ import annotations

import textwrap
from itertools import cycle
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import BoundaryNorm
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from sliceformer_lab.measures.probe_record import ProbeRecord
from sliceformer_lab.runs.files import whole_bytes

# Okabe and Ito's colours, distinguishable with any colour vision
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = "osD^vPX"
GRADIENT = mpl.colormaps["viridis"]
PLACES_SHOWN = {"input": "Operator input V", "output": "Operator output", "stream": "Block output"}
MIN_SINGULAR_VALUE = 1e-6  # smaller singular values are rounding errors of float32
DEPTH_PANELS = (
    ("stable_rank", "raw", "Stable rank"),
    ("stable_rank", "mean_removed", "Stable rank, token mean removed"),
    ("residual", "raw", "Relative rank-1 residual, (1,inf) norm"),
    ("cosine", "raw", "Mean cosine between tokens"),
)


def plot_spectra(record: ProbeRecord, path: Path) -> None:
    """Draw the spectra of all layers at the operator's input and output, and the collapse over depth, of one run."""
    figure = Figure(figsize=(16, 8.2), layout="constrained")
    above, below = figure.subplots(2, 4)
    moments = [0, -1] if len(record.epochs) > 1 else [-1]
    panels = [(place, moment) for moment in moments for place in ("input", "output")]
    colours = GRADIENT(np.linspace(0, 1, len(record.attentions)))  # of the layers
    for axes, (place, moment) in zip(above, panels, strict=False):
        axes.sharey(above[0])
        for colour, spectrum in zip(colours, record.at("spectrum", place, "raw", moment=moment), strict=True):
            _draw_spectrum(axes, spectrum, color=colour)
        axes.set_title(f"{PLACES_SHOWN[place]}, {describe_moment(record, moment)}")
    for axes in above[len(panels) :]:
        axes.remove()
    for axes, (measure, form, title) in zip(below, DEPTH_PANELS, strict=True):
        for (place, label), colour, marker in zip(PLACES_SHOWN.items(), COLOURS, MARKERS, strict=False):
            for moment in moments:
                drawn = {"linestyle": "-"} if moment else {"linestyle": "--", "markerfacecolor": "white"}
                values, name = (
                    record.at(measure, place, form, moment=moment),
                    f"{label}, {describe_moment(record, moment)}",
                )
                _over_depth(axes, values, color=colour, marker=marker, label=name, **drawn)
        axes.set_title(title)
        _from_zero(axes)
    scale = ScalarMappable(BoundaryNorm(np.arange(len(record.attentions) + 1) + 0.5, 256), GRADIENT)
    figure.colorbar(
        scale,
        ax=list(above[: len(panels)]),
        ticks=np.arange(len(record.attentions)) + 1,
        label="layer",
        fraction=0.02,
        pad=0.01,
    )
    handles, labels = below[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
    kinds = ", ".join(dict.fromkeys(record.attentions.tolist()))
    figure.suptitle(f"{kinds}: token matrices of {len(record.sample_ids)} validation samples, mean over the samples")
    save_figure(figure, path)


def plot_curves(metrics: pd.DataFrame, path: Path) -> None:
    """Draw losses and scores over the epochs from the table of logged metrics with its column `epoch`."""
    names = [str(name) for name in metrics.columns]
    curves = {
        "Loss": [name for name in names if name.endswith("/loss")],
        "Score": [name for name in names if name.startswith(("val/", "test_curve/")) and not name.endswith("/loss")],
    }
    panels = {title: columns for title, columns in curves.items() if columns}
    figure = Figure(figsize=(5.5 * max(len(panels), 1), 4), layout="constrained")
    for axes, (title, columns) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels.items(), strict=True):
        for column, colour, marker in zip(columns, cycle(COLOURS), cycle(MARKERS), strict=False):
            curve = metrics[["epoch", column]].dropna().groupby("epoch")[column].last()
            axes.plot(curve.index + 1, curve, color=colour, marker=marker, markersize=3, label=column)
        axes.set(title=title, xlabel="epoch")
        if all("accuracy" in column for column in columns):
            axes.set_ylim(top=min(1.0, axes.get_ylim()[1]))
        whole_numbers(axes)
        axes.legend(frameon=False)
        axes.grid(alpha=0.3)
    save_figure(figure, path)


def _draw_spectrum(axes: Axes, spectrum: NDArray[np.float64], **style: Any) -> None:
    values = spectrum[spectrum > MIN_SINGULAR_VALUE]  # also drops the NaN padding
    axes.semilogy(np.arange(1, len(values) + 1), values, **style)
    axes.set(xlabel="index i of the singular value", ylabel="$s_i / s_1$")
    whole_numbers(axes)
    axes.grid(alpha=0.3)


def _over_depth(axes: Axes, values: NDArray[np.float64], **style: Any) -> None:
    axes.plot(np.arange(1, len(values) + 1), values, **style)
    axes.set(xlabel="layer", xlim=(0.5, len(values) + 0.5))
    whole_numbers(axes)
    axes.grid(alpha=0.3)


def _from_zero(axes: Axes) -> None:
    """Start the axis at 0 or below. Call it after all lines are drawn, because it ends automatic scaling."""
    bottom, top = min(0.0, axes.get_ylim()[0]), axes.get_ylim()[1]
    axes.set_ylim(bottom, top + 0.04 * (top - bottom))  # so that the uppermost markers are whole


def whole_numbers(axes: Axes) -> None:
    """Number the x axis by whole numbers only."""
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True, min_n_ticks=1))


def describe_moment(record: ProbeRecord, moment: int) -> str:
    """Description of the `moment`-th record."""
    finished = int(record.epochs[moment]) + 1
    return f"after epoch {finished}" if finished else "before training"


def save_figure(figure: Figure, path: Path) -> None:
    """Write a PNG whole or not at all."""
    with whole_bytes(path) as file:
        figure.savefig(file, format="png", dpi=110)


def shorten_path(text: str, longest: int = 36) -> str:
    """The end of a path, which names the example."""
    return text if len(text) <= longest else f"…{text[1 - longest :]}"


def wrap_title(figure: Figure, title: str) -> None:
    """Writes a title above a figure, in lines of its width."""
    width = int(9.5 * figure.get_figwidth())
    figure.suptitle("\n".join(textwrap.wrap(title, width)), fontsize=11, parse_math=False)
