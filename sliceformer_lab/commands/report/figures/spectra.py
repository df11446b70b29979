"""Collapse in figures: spectra of the operators' outputs, over depth and over training, from runs' spectrum.npz."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from sliceformer_lab.commands.report.figures.figure import (
    AFTER,
    BEFORE,
    MOMENT,
    MOST_POINTS,
    ROW,
    Figure,
    axis_bounds,
    gradient_panel,
    line_panel,
    seed_means,
    side_by_side,
    subsample,
)
from sliceformer_lab.commands.report.figures.plot_rows import PlotTable
from sliceformer_lab.measures.plots import DEPTH_PANELS, MIN_SINGULAR_VALUE
from sliceformer_lab.measures.probe import ProbeRecord

SPECTRUM = "spectrum.npz"
FORMS = {"raw": "", "mean_removed": ", token mean removed"}
MOST_LAYERS = 4  # shown one by one
MOST_EPOCHS = 6  # of spectra over training
INDICES = set(np.geomspace(1, 4096, 56).round().astype(int).tolist())  # indices of singular values that are plotted
COLUMNS = {  # the key columns of each table of `Probed`
    "spectra": ("form", "layer", "x"),  # layer of MOST_LAYERS, x the index
    "growth": ("epoch", "x"),  # of the last layer, raw; x the index
    "depth": ("measure", MOMENT, "x"),  # x the layer
    "training": ("measure", "x"),  # mean over the layers; x the epoch
}
ALT_MEASURE = DEPTH_PANELS[2][2]  # the residual, which the text alternatives state
MEASURED_OUTPUT = "Operator output (the input of its last linear layer) on a fixed set of validation samples. "
BANDS = (
    "Lines are means over the seeds of a row; bands, from three seeds on, are pointwise 95 % intervals (Student's t)"
)


@dataclass(frozen=True)
class Probed:
    """The spectrum files of a table, as tables with the columns row, COLUMNS and value."""

    spectra: pd.DataFrame
    growth: pd.DataFrame
    depth: pd.DataFrame
    training: pd.DataFrame
    layers: Sequence[str]  # titles of the layers in `spectra`
    without: int  # number of runs without a readable file


def spectral_figures(plotted: PlotTable) -> list[Figure]:
    """Spectra, spectra over training, collapse over depth and over training; empty if no run has any."""
    found = _probed(plotted)
    if found is None:
        return []
    kinds = (_spectra, _growth, _depth, _training)
    made = [kind(plotted, found) for kind in kinds]
    return [figure for figure in made if figure is not None]


def _spectra(plotted: PlotTable, found: Probed) -> Figure | None:
    """Normalised singular values of a few layers, raw and without the token mean."""
    table = seed_means(found.spectra, [ROW, "form", "layer", "x"])
    table = table[table["mean"] > MIN_SINGULAR_VALUE]
    if table.empty:
        return None
    panels, reach = [], (1, int(table["x"].max()))
    for form, words in FORMS.items():
        of_form = table[table["form"] == form]
        domain = axis_bounds(of_form["mean"], log=True)
        for layer, title in enumerate(found.layers):
            here = of_form[of_form["layer"] == layer].drop(columns=["form", "layer"])
            if len(here):
                panel = partial(line_panel, here, plotted.looks(table), x="index i of the singular value")
                panels.append(panel(title=f"{title}{words}", log=True, domain=domain, reach=reach))
    last = table[(table["form"] == "raw") & (table["layer"] == table["layer"].max())]
    shares = {row: (values["mean"] > 0.1).sum() for row, values in last.groupby(ROW, sort=False)}
    return Figure(
        name=f"spectra{plotted.suffix}",
        title="Singular values after training",
        caption=(
            f"{MEASURED_OUTPUT}Singular values s_i / s_1 after training, raw and with the token mean removed. "
            f"{BANDS}. Lines end where values fall below {MIN_SINGULAR_VALUE:g}, the rounding of float32; "
            "if all tokens are equal, nothing remains without their mean. A flat spectrum can come from the operator's "
            f"input as well as from the operator.{_left_out(plotted, found)}"
        ),
        alt="Plotted singular values above a tenth of the largest, in the last layer: "
        + ", ".join(f"{row} {count}" for row, count in shares.items()),
        spec=side_by_side(panels, columns=len(found.layers)),
    )


def _growth(plotted: PlotTable, found: Probed) -> Figure | None:
    """The spectrum of the last layer at several epochs, a panel for each row."""
    table = seed_means(found.growth, [ROW, "epoch", "x"])
    table = table[table["mean"] > MIN_SINGULAR_VALUE]
    if table.empty or table["epoch"].nunique() < 2:
        return None
    domain, epochs = axis_bounds(table["mean"], log=True), (int(table["epoch"].min()), int(table["epoch"].max()))
    reach = (1, int(table["x"].max()))
    panels = [
        gradient_panel(
            here.drop(columns=[ROW, "low", "high"]), title=str(row), domain=domain, reach=reach, epochs=epochs
        )
        for row, here in table.groupby(ROW, sort=False)
    ]
    return Figure(
        name=f"spectra_over_training{plotted.suffix}",
        title="Singular values over training",
        caption=(
            f"{MEASURED_OUTPUT}Singular values s_i / s_1 of the last layer, mean over seeds; epoch 0: before training."
            f"{_left_out(plotted, found)}"
        ),
        alt=f"{len(panels)} rows, epochs {epochs[0]} to {epochs[1]}.",
        spec=side_by_side(panels, columns=4),
    )


def _depth(plotted: PlotTable, found: Probed) -> Figure | None:
    """Collapse measures of each layer, before and after training."""
    table = seed_means(found.depth, [ROW, "measure", MOMENT, "x"])
    if table.empty or table["x"].nunique() < 2:
        return None
    shown = table[(table["measure"] == ALT_MEASURE) & (table[MOMENT] == AFTER)]
    return Figure(
        name=f"collapse_over_depth{plotted.suffix}",
        title="Collapse over depth",
        caption=(
            f"{MEASURED_OUTPUT}The residual is the (1,inf) norm of the tokens without their mean, relative to that of "
            "the tokens; it is 0 if all tokens are equal. A stable rank of 1 is a matrix of rank one. Dashed lines: "
            f"before training; solid lines: after it. {BANDS}, after training only.{_left_out(plotted, found)}"
        ),
        alt=f"{ALT_MEASURE} of the last layer after training: "
        + ", ".join(f"{row} {value:.3g}" for row, value in shown.groupby(ROW, sort=False)["mean"].last().items()),
        spec=_measure_panels(plotted, table, "layer"),
    )


def _training(plotted: PlotTable, found: Probed) -> Figure | None:
    """Collapse measures over training."""
    table = seed_means(found.training, [ROW, "measure", "x"])
    if table.empty or table["x"].nunique() < 2:
        return None
    ends = table[table["measure"] == ALT_MEASURE].groupby(ROW, sort=False)["mean"].agg(["first", "last"])
    return Figure(
        name=f"collapse_over_training{plotted.suffix}",
        title="Collapse over training",
        caption=f"{MEASURED_OUTPUT}Means over layers; epoch 0: before training. {BANDS}.{_left_out(plotted, found)}",
        alt=f"{ALT_MEASURE} before and after training, mean over the layers: "
        + ", ".join(f"{row} {first:.3g} and {last:.3g}" for row, (first, last) in ends.iterrows()),
        spec=_measure_panels(plotted, table, "epoch"),
    )


def _measure_panels(plotted: PlotTable, table: pd.DataFrame, x: str) -> dict[str, Any]:
    """The specification of a panel for each measure of the table."""
    panels = [
        line_panel(here.drop(columns="measure"), plotted.looks(table), x=x, title=str(measure))
        for measure, here in table.groupby("measure", sort=False)
    ]
    return side_by_side(panels, columns=4)


def _left_out(plotted: PlotTable, found: Probed) -> str:
    runs = f" {found.without} runs have no readable {SPECTRUM}." if found.without else ""
    return plotted.omission(plotted.main_rows) + runs


def _probed(plotted: PlotTable) -> Probed | None:
    """The spectrum files of a table; None if no run has a readable one."""
    parts: dict[str, list[tuple[object, ...]]] = {name: [] for name in COLUMNS}
    depths: dict[int, None] = {}
    without = 0
    for row in plotted.main_rows:
        for run in row.runs:
            try:
                record = ProbeRecord.load(run.folder / SPECTRUM)
                found = {name: list(values) for name, values in _values(record).items()}
            except (OSError, EOFError, KeyError, ValueError, IndexError, zipfile.BadZipFile, zlib.error):
                without += 1
                continue
            depths[len(record.attentions)] = None
            for name, values in found.items():
                parts[name] += [(row.name, *value) for value in values]
    if not depths:
        return None
    whole = {name: pd.DataFrame(parts[name], columns=[ROW, *columns, "value"]) for name, columns in COLUMNS.items()}
    return Probed(**whole, layers=_layer_titles(list(depths)), without=without)


def _values(record: ProbeRecord) -> dict[str, Iterator[tuple[object, ...]]]:
    """The rows that one run adds to each table: its key columns, then the value."""
    return {
        "spectra": _spectra_of(record),
        "growth": _growth_of(record),
        "depth": _depth_of(record),
        "training": _training_of(record),
    }


def _spectra_of(record: ProbeRecord) -> Iterator[tuple[object, ...]]:
    for form in FORMS:
        layers = record.at("spectrum", "output", form)
        for place, layer in enumerate(_chosen_layers(len(layers))):
            yield from ((form, place, *point) for point in _points(layers[layer]))


def _growth_of(record: ProbeRecord) -> Iterator[tuple[object, ...]]:
    for moment in _moments(record, MOST_EPOCHS):
        last = record.at("spectrum", "output", "raw", moment=moment)[-1]
        yield from ((int(record.epochs[moment]) + 1, *point) for point in _points(last))


def _depth_of(record: ProbeRecord) -> Iterator[tuple[object, ...]]:
    ends = {AFTER: -1} | ({BEFORE: 0} if record.epochs[0] == -1 and len(record.epochs) > 1 else {})
    for name, form, title in DEPTH_PANELS:
        for words, moment in ends.items():
            layers = record.at(name, "output", form, moment=moment)
            yield from ((title, words, layer, float(value)) for layer, value in enumerate(layers, start=1))


def _training_of(record: ProbeRecord) -> Iterator[tuple[object, ...]]:
    for name, form, title in DEPTH_PANELS:
        for moment in _moments(record, MOST_POINTS):
            value = float(record.at(name, "output", form, moment=moment).mean())
            yield title, int(record.epochs[moment]) + 1, value


def _moments(record: ProbeRecord, most: int) -> list[int]:
    """Indices of at most `most` records, with the first and the last."""
    return [int(moment) for moment in subsample(np.arange(len(record.epochs)), most)]


def _points(values: np.ndarray) -> Iterator[tuple[int, float]]:
    """Singular values at INDICES and the last two (removing the mean removes one), with their index from 1."""
    known = values[np.isfinite(values)]
    count = len(known)
    return ((i, float(known[i - 1])) for i in range(1, count + 1) if i in INDICES or i >= count - 1)


def _chosen_layers(depth: int) -> list[int]:
    """At most MOST_LAYERS layers out of `depth`, counted from 0, with the first and the last."""
    return [int(layer) for layer in subsample(np.arange(depth), MOST_LAYERS)]


def _layer_titles(depths: Sequence[int]) -> list[str]:
    """Titles of the chosen layers, in models of one or several depths."""
    titles: list[dict[str, None]] = [{} for _ in range(max(len(_chosen_layers(depth)) for depth in depths))]
    for depth in depths:
        for title, layer in zip(titles, _chosen_layers(depth), strict=False):
            title[f"{layer + 1} of {depth}"] = None
    return [f"Layer {', '.join(title)}" for title in titles]
