"""Pictures of a run while it trains: singular spectra, collapse over depth, learning curves."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.colors import to_hex
from matplotlib.lines import Line2D

from sliceformer_lab.measures.drawing import (
    EMPTY,
    GRADIENT,
    Chart,
    Look,
    Panel,
    legend_of,
    looks_of,
    save_chart,
)
from sliceformer_lab.measures.line_panels import (
    AFTER,
    BEFORE,
    MOMENT,
    ROW,
    axis_bounds,
    gradient_panel,
    line_panel,
    moments_legend,
    thin_out,
)
from sliceformer_lab.measures.metric_scale import factor_of, metric_bounds
from sliceformer_lab.measures.probe_record import ProbeRecord

PLACES_SHOWN = {"input": "Operator input V", "output": "Operator output", "stream": "Block output"}
MAX_LAYER_ENTRIES = 8  # in a legend
MIN_SINGULAR_VALUE = 1e-6  # smaller singular values are rounding errors of float32
DEPTH_PANELS = (
    ("stable_rank", "raw", "Stable rank"),
    ("stable_rank", "mean_removed", "Stable rank, token mean removed"),
    ("residual", "raw", "Relative rank-1 residual, (1,inf) norm"),
    ("cosine", "raw", "Mean cosine between tokens"),
)


def plot_spectra(record: ProbeRecord, path: Path) -> None:
    """Draw the spectra of all layers at the operator's input and output, and the collapse over depth, of one run."""
    layers = range(1, len(record.attentions) + 1)
    shades = colours_between(layers)
    spectra = _spectra_panels(record, shades)
    looks = looks_of(dict.fromkeys(PLACES_SHOWN.values(), False))
    depth = [_depth_panel(record, *panel, looks) for panel in DEPTH_PANELS]
    kinds = ", ".join(dict.fromkeys(record.attentions.tolist()))
    averaged = "those that have a value" if np.ptp(record.num_tokens) else "the samples"
    chart = Chart(
        panels=[*spectra, *[EMPTY] * (len(depth) - len(spectra)), *depth],
        legend=[
            *(Line2D([], [], color=shades[one], label=f"layer {one}") for one in thin_out(layers, MAX_LAYER_ENTRIES)),
            *legend_of(looks),
            *(moments_legend() if len(record.epochs) > 1 else []),
        ],
        heading=f"{kinds}: token matrices of {len(record.sample_ids)} validation samples, mean over {averaged}",
        size=(3.6, 3.2),
        columns=len(depth),
    )
    save_chart(chart, path)


def colours_between(numbers: Sequence[int]) -> dict[int, str]:
    """A colour for each number, from dark to light, but neither as dark nor as light as a page."""
    places = np.interp(numbers, (numbers[0], max(numbers[-1], numbers[0] + 1)), (0.25, 0.95))
    return dict(zip(numbers, map(to_hex, GRADIENT(places)), strict=True))


def _spectra_panels(record: ProbeRecord, shades: dict[int, str]) -> list[Panel]:
    """Singular values of all layers at the operator's input and output, before and after training."""
    tables = {}
    for moment in (0, -1) if len(record.epochs) > 1 else (-1,):
        for place in ("input", "output"):
            spectra = record.at("spectrum", place, "raw", moment=moment)
            points = [
                (layer, i, s) for layer, values in zip(shades, spectra, strict=True) for i, s in enumerate(values)
            ]
            table = pd.DataFrame(points, columns=["shade", "x", "mean"]).assign(x=lambda found: found["x"] + 1)
            title = f"{PLACES_SHOWN[place]}, {describe_moment(record, moment)}: s_i / s_1"
            tables[title] = table[table["mean"] > MIN_SINGULAR_VALUE]  # also drops the NaN padding
    shown = pd.concat(tables.values())
    domain, reach = axis_bounds(shown["mean"], log=True), (1, int(shown["x"].max()))
    return [gradient_panel(table, shades, title=title, domain=domain, reach=reach) for title, table in tables.items()]


def _depth_panel(record: ProbeRecord, measure: str, form: str, title: str, looks: dict[str, Look]) -> Panel:
    """A measure over the layers, at every place; dashed before training."""
    moments = {BEFORE: 0, AFTER: -1} if len(record.epochs) > 1 else {AFTER: -1}
    points = [
        (words, label, layer, value)
        for words, moment in moments.items()
        for place, label in PLACES_SHOWN.items()
        for layer, value in enumerate(record.at(measure, place, form, moment=moment), start=1)
    ]
    table = pd.DataFrame(points, columns=[MOMENT, ROW, "x", "mean"]).assign(low=np.nan, high=np.nan)
    low, high = axis_bounds(table["mean"], log=False)
    return line_panel(table, looks, x="layer", title=title, domain=(min(0.0, low), high))


def plot_curves(metrics: pd.DataFrame, path: Path) -> None:
    """Draw losses and scores over the epochs from the table of logged metrics with its column `epoch`."""
    names = [str(name) for name in metrics.columns]
    curves = {
        "Loss": [name for name in names if name.endswith("/loss")],
        "Score": [name for name in names if name.startswith(("val/", "test_curve/")) and not name.endswith("/loss")],
    }
    panels = {title: columns for title, columns in curves.items() if columns}
    looks = looks_of({column: False for columns in panels.values() for column in columns})
    chart = Chart(
        panels=[_curve_panel(metrics, columns, looks, title) for title, columns in panels.items()] or [EMPTY],
        legend=legend_of(looks),
        size=(5.0, 3.6),
    )
    save_chart(chart, path)


def _curve_panel(metrics: pd.DataFrame, columns: list[str], looks: dict[str, Look], title: str) -> Panel:
    """The last value of each epoch of some columns."""
    values = metrics.melt("epoch", columns, ROW, "mean").dropna()
    table = values.groupby([ROW, "epoch"], sort=False)["mean"].last().reset_index()
    table = table.assign(x=table["epoch"] + 1, low=np.nan, high=np.nan)
    has_one_unit = len({factor_of(column) for column in columns}) == 1
    metric = columns[0] if has_one_unit else ""
    domain = axis_bounds(table["mean"], log=False, within=metric_bounds(metric))
    return line_panel(table, looks, x="epoch", title=title, metric=metric, domain=domain)


def describe_moment(record: ProbeRecord, moment: int) -> str:
    """Description of the `moment`-th record."""
    finished = int(record.epochs[moment]) + 1
    return f"after epoch {finished}" if finished else "before training"
