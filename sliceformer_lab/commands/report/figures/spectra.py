"""Collapse in figures: spectra of the operators' outputs, over depth and over training, from runs' spectrum.npz."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest

import numpy as np
import pandas as pd
from matplotlib.lines import Line2D

from sliceformer_lab.commands.report.figures.plot_rows import PageFigure, PlotTable
from sliceformer_lab.measures.drawing import Panel, legend_of
from sliceformer_lab.measures.line_panels import (
    AFTER,
    BEFORE,
    MAX_LINE_POINTS,
    MOMENT,
    ROW,
    axis_bounds,
    gradient_panel,
    line_panel,
    moments_legend,
    seed_means,
    thin_out,
)
from sliceformer_lab.measures.plots import DEPTH_PANELS, MIN_SINGULAR_VALUE, colours_between
from sliceformer_lab.measures.probe_record import ProbeRecord

SPECTRUM = "spectrum.npz"
FORMS = {"raw": "", "mean_removed": ", token mean removed"}
MAX_LAYERS = 4  # shown one by one
MAX_EPOCHS = 6  # of spectra over training
INDICES = set(np.geomspace(1, 4096, 56).round().astype(int).tolist())  # indices of singular values that are plotted
ALT_MEASURE = DEPTH_PANELS[2][2]  # the residual, which the text alternatives state
MEASURED_OUTPUT = "Operator output (the input of its last linear layer) on a fixed set of validation samples. "
BANDS = (
    "Lines are means over the seeds of a row; bands, from three seeds on, are pointwise 95 % intervals (Student's t)"
)


@dataclass(frozen=True)
class Probed:
    """The spectrum files of a table: means over seeds by the names of TABLES."""

    means: Mapping[str, pd.DataFrame]
    layers: Sequence[str]  # titles of the layers in `spectra`
    left_out: str  # a sentence on rows and runs that are not shown


def spectral_figures(plotted: PlotTable) -> list[PageFigure]:
    """Spectra, spectra over training, collapse over depth and over training; empty if no run has any."""
    found = _find_spectra(plotted)
    made = (
        [kind(plotted, found) for kind in (_draw_spectra, _draw_growth, _draw_depth, _draw_training)] if found else []
    )
    return [figure for figure in made if figure is not None]


def _draw_spectra(plotted: PlotTable, found: Probed) -> PageFigure | None:
    """Normalised singular values of a few layers, raw and without the token mean."""
    table = found.means["spectra"]
    table = table[table["mean"] > MIN_SINGULAR_VALUE]
    if table.empty:
        return None
    panels, looks, reach = [], plotted.looks(table), (1, int(table["x"].max()))
    for form, words in FORMS.items():
        of_form = table[table["form"] == form]
        domain = axis_bounds(of_form["mean"], log=True)
        for layer, title in enumerate(found.layers):
            if len(here := of_form[of_form["layer"] == layer]):
                ends = partial(line_panel, here, looks, log=True, domain=domain, reach=reach)
                panels.append(ends(x="index i of the singular value", title=f"{title}{words}"))
    last = table[(table["form"] == "raw") & (table["layer"] == table["layer"].max())]
    shares = {row: (values["mean"] > 0.1).sum() for row, values in last.groupby(ROW, sort=False)}
    return PageFigure(
        name=f"spectra{plotted.suffix}",
        title="Singular values after training",
        caption=(
            f"{MEASURED_OUTPUT}Singular values s_i / s_1 after training, raw and with the token mean removed. "
            f"{BANDS}. Lines end where values fall below {MIN_SINGULAR_VALUE:g}, the rounding of float32; "
            "if all tokens are equal, nothing remains without their mean. A mean is over the samples "
            "that have the value, at least half of them. A flat spectrum can come from the operator's input as well as "
            f"from the operator.{found.left_out}"
        ),
        alt="Plotted singular values above a tenth of the largest, in the last layer: "
        + ", ".join(f"{row} {count}" for row, count in shares.items()),
        panels=panels,
        legend=legend_of(looks),
        columns=len(found.layers),
    )


def _draw_growth(plotted: PlotTable, found: Probed) -> PageFigure | None:
    """The spectrum of the last layer at several epochs, a panel for each row."""
    table = found.means["growth"]
    table = table[table["mean"] > MIN_SINGULAR_VALUE]
    if table.empty or table["shade"].nunique() < 2:
        return None
    drawn = sorted(map(int, table["shade"].unique()))
    domain, epochs, reach = axis_bounds(table["mean"], log=True), (drawn[0], drawn[-1]), (1, int(table["x"].max()))
    colours = colours_between(drawn)
    panels = [
        gradient_panel(here, colours, title=str(row), domain=domain, reach=reach)
        for row, here in table.groupby(ROW, sort=False)
    ]
    return PageFigure(
        name=f"spectra_over_training{plotted.suffix}",
        title="Singular values over training",
        caption=(
            f"{MEASURED_OUTPUT}Singular values s_i / s_1 of the last layer, mean over seeds; epoch 0: before training."
            f"{found.left_out}"
        ),
        alt=f"{len(panels)} rows, epochs {epochs[0]} to {epochs[1]}.",
        panels=panels,
        legend=[Line2D([], [], color=colours[epoch], label=f"epoch {epoch}") for epoch in thin_out(drawn, MAX_EPOCHS)],
        columns=4,
    )


def _draw_depth(plotted: PlotTable, found: Probed) -> PageFigure | None:
    """Collapse measures of each layer, before and after training."""
    table = found.means["depth"]
    if table.empty or table["x"].nunique() < 2:
        return None
    shown = table[(table["measure"] == ALT_MEASURE) & (table[MOMENT] == AFTER)]
    return PageFigure(
        name=f"collapse_over_depth{plotted.suffix}",
        title="Collapse over depth",
        caption=(
            f"{MEASURED_OUTPUT}The residual is the (1,inf) norm of the tokens without their mean, relative to that of "
            "the tokens; it is 0 if all tokens are equal. A stable rank of 1 is a matrix of rank one. Dashed lines: "
            f"before training; solid lines: after it. {BANDS}, after training only.{found.left_out}"
        ),
        alt=f"{ALT_MEASURE} of the last layer after training: "
        + ", ".join(f"{row} {value:.3g}" for row, value in shown.groupby(ROW, sort=False)["mean"].last().items()),
        panels=_measure_panels(plotted, table, "layer"),
        legend=[*legend_of(plotted.looks(table), lines=False), *moments_legend()],
        columns=4,
    )


def _draw_training(plotted: PlotTable, found: Probed) -> PageFigure | None:
    """Collapse measures over training."""
    table = found.means["training"]
    if table.empty or table["x"].nunique() < 2:
        return None
    ends = table[table["measure"] == ALT_MEASURE].groupby(ROW, sort=False)["mean"].agg(["first", "last"])
    return PageFigure(
        name=f"collapse_over_training{plotted.suffix}",
        title="Collapse over training",
        caption=f"{MEASURED_OUTPUT}Means over layers; epoch 0: before training. {BANDS}.{found.left_out}",
        alt=f"{ALT_MEASURE} before and after training, mean over the layers: "
        + ", ".join(f"{row} {first:.3g} and {last:.3g}" for row, (first, last) in ends.iterrows()),
        panels=_measure_panels(plotted, table, "epoch"),
        legend=legend_of(plotted.looks(table)),
        columns=4,
    )


def _measure_panels(plotted: PlotTable, table: pd.DataFrame, x: str) -> list[Panel]:
    """A panel for each measure of the table."""
    return [
        line_panel(here, plotted.looks(table), x=x, title=str(measure))
        for measure, here in table.groupby("measure", sort=False)
    ]


def _find_spectra(plotted: PlotTable) -> Probed | None:
    """The spectrum files of a table; None if no run has a readable one."""
    parts: dict[str, list[tuple[object, ...]]] = {name: [] for name in TABLES}
    depths: dict[int, None] = {}
    without = 0
    for name, run in ((row.name, run) for row in plotted.main_rows for run in row.runs):
        try:
            record = ProbeRecord.load(run.folder / SPECTRUM)
            found = {table: list(values(record)) for table, (_, values) in TABLES.items()}
        except (OSError, EOFError, KeyError, ValueError, IndexError, zipfile.BadZipFile, zlib.error):
            without += 1
            continue
        depths[len(record.attentions)] = None
        for table, values in found.items():
            parts[table] += [(name, *value) for value in values]
    means = {
        table: seed_means(pd.DataFrame(parts[table], columns=[ROW, *keys, "value"]), [ROW, *keys])
        for table, (keys, _) in TABLES.items()
    }
    runs = f" {without} runs have no readable {SPECTRUM}." if without else ""
    return Probed(means, _layer_titles(list(depths)), plotted.omission(plotted.main_rows) + runs) if depths else None


def _spectra_of(record: ProbeRecord) -> Iterator[tuple[object, ...]]:
    for form in FORMS:
        layers = record.at("spectrum", "output", form)
        for place, layer in enumerate(thin_out(range(len(layers)), MAX_LAYERS)):
            yield from ((form, place, *point) for point in _list_points(layers[layer]))


def _growth_of(record: ProbeRecord) -> Iterator[tuple[object, ...]]:
    for moment in thin_out(range(len(record.epochs)), MAX_EPOCHS):
        last = record.at("spectrum", "output", "raw", moment=moment)[-1]
        yield from ((int(record.epochs[moment]) + 1, *point) for point in _list_points(last))


def _depth_of(record: ProbeRecord) -> Iterator[tuple[object, ...]]:
    ends = {AFTER: -1} | ({BEFORE: 0} if record.epochs[0] == -1 and len(record.epochs) > 1 else {})
    for name, form, title in DEPTH_PANELS:
        for words, moment in ends.items():
            layers = record.at(name, "output", form, moment=moment)
            yield from ((title, words, layer, float(value)) for layer, value in enumerate(layers, start=1))


def _training_of(record: ProbeRecord) -> Iterator[tuple[object, ...]]:
    for name, form, title in DEPTH_PANELS:
        for moment in thin_out(range(len(record.epochs)), MAX_LINE_POINTS):
            value = float(record.at(name, "output", form, moment=moment).mean())
            yield title, int(record.epochs[moment]) + 1, value


def _list_points(values: np.ndarray) -> Iterator[tuple[int, float]]:
    """Singular values at INDICES and the last two (removing the mean removes one), with their index from 1."""
    known = values[np.isfinite(values)]
    count = len(known)
    return ((i, float(known[i - 1])) for i in range(1, count + 1) if i in INDICES or i >= count - 1)


def _layer_titles(depths: Sequence[int]) -> list[str]:
    """Titles of the chosen layers, in models of one or several depths."""
    chosen = [[f"{layer + 1} of {depth}" for layer in thin_out(range(depth), MAX_LAYERS)] for depth in depths]
    return [f"Layer {', '.join(filter(None, names))}" for names in zip_longest(*chosen)]


TABLES: dict[str, tuple[tuple[str, ...], Callable[[ProbeRecord], Iterator[tuple[object, ...]]]]] = {
    "spectra": (("form", "layer", "x"), _spectra_of),  # layer of MAX_LAYERS, x the index
    "growth": (("shade", "x"), _growth_of),  # of the last layer, raw; shade the epoch, x the index
    "depth": (("measure", MOMENT, "x"), _depth_of),  # x the layer
    "training": (("measure", "x"), _training_of),  # mean over the layers; x the epoch
}  # name -> the key columns of the table, and the rows that a run adds to it: its keys, then the value
