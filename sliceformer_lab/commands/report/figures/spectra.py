"""Collapse in figures: spectra of the operators' outputs, over depth and over training, from runs' spectrum.npz."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pandas as pd

from sliceformer_lab.commands.report.figures.figure import (
    AFTER,
    BEFORE,
    MOMENT,
    MOST_POINTS,
    ROW,
    Figure,
    Look,
    fitting,
    gradient_panel,
    line_panel,
    rows_alike,
    side_by_side,
    thinned,
)
from sliceformer_lab.commands.report.figures.heatmaps import heatmaps
from sliceformer_lab.commands.report.figures.line_rows import Subject
from sliceformer_lab.measures.plots import DEPTH_PANELS, FLOOR
from sliceformer_lab.measures.probe import ProbeRecord
from sliceformer_lab.runs.collect import RunRecord

SPECTRUM = "spectrum.npz"
FORMS = {"raw": "", "mean_removed": ", token mean removed"}
MOST_LAYERS = 4  # shown one by one
MOST_EPOCHS = 6  # of spectra over training
INDICES = set(np.geomspace(1, 4096, 56).round().astype(int).tolist())  # of singular values that lines go through
COLUMNS = {  # what tells the values of a run apart, for each table of `Probed`
    "spectra": ("form", "layer", "x"),  # layer of MOST_LAYERS, x the index
    "growth": ("epoch", "x"),  # of the last layer, raw; x the index
    "depth": ("measure", MOMENT, "x"),  # x the layer
    "training": ("measure", "x"),  # mean over the layers; x the epoch
}
TOLD = DEPTH_PANELS[2][2]  # the residual, in the text alternatives
OF_WHAT = "The operator's output (what it hands to its last linear layer), of one fixed set of validation samples. "
BANDS = (
    "Lines are means over the seeds of a row, bands (from three on) the 95 % interval of Student's t at "
    "each point by itself"
)


@dataclass(frozen=True)
class Probed:
    """What the spectrum files of a table say: tables with the columns row and value, and COLUMNS between them."""

    spectra: pd.DataFrame
    growth: pd.DataFrame
    depth: pd.DataFrame
    training: pd.DataFrame
    layers: Sequence[str]  # what the layers of `spectra` are
    first: Mapping[str, tuple[RunRecord, ProbeRecord]]  # the first run of each row that has heatmaps
    without: int  # runs that have no such file, or half of one


def spectral_figures(subject: Subject) -> list[Figure]:
    """Spectra, their growth, collapse over depth and over training, heatmaps; none where no run was probed."""
    found = _probed(subject)
    if found is None:
        return []
    kinds = (_spectra, _growth, _depth, _training)
    drawn = [kind(subject, found) for kind in kinds]
    return [*(figure for figure in drawn if figure is not None), *heatmaps(subject, found.first)]


def _spectra(subject: Subject, found: Probed) -> Figure | None:
    """Normalised singular values of a few layers, raw and with the token mean removed."""
    table = rows_alike(found.spectra, [ROW, "form", "layer", "x"])
    table = table[table["mean"] > FLOOR]
    if table.empty:
        return None
    panels, reach = [], (1, int(table["x"].max()))
    for form, words in FORMS.items():
        of_form = table[table["form"] == form]
        domain = fitting(of_form["mean"], log=True)
        for layer, title in enumerate(found.layers):
            here = of_form[of_form["layer"] == layer].drop(columns=["form", "layer"])
            if len(here):
                panel = partial(line_panel, here, _looks(subject, table), x="index i of the singular value")
                panels.append(panel(title=f"{title}{words}", log=True, domain=domain, reach=reach))
    last = table[(table["form"] == "raw") & (table["layer"] == table["layer"].max())]
    shares = {row: (values["mean"] > 0.1).sum() for row, values in last.groupby(ROW, sort=False)}
    return Figure(
        name=f"spectra{subject.suffix}",
        title="Singular values after training",
        caption=(
            f"{OF_WHAT}Singular values s_i / s_1 at the end of training, as they are and with the mean token removed. "
            f"{BANDS}. A line ends where values are below {FLOOR:g}, the rounding of float32; of equal tokens nothing "
            "is left once their mean is removed. A flat spectrum may come from the values that an operator is given "
            f"as well as from the operator.{_left_out(subject, found)}"
        ),
        alt="Drawn singular values above a tenth of the largest in the last layer: "
        + ", ".join(f"{row} {count}" for row, count in shares.items()),
        spec=side_by_side(panels, columns=len(found.layers)),
    )


def _growth(subject: Subject, found: Probed) -> Figure | None:
    """The last layer's spectrum at several epochs, a panel for each row."""
    table = rows_alike(found.growth, [ROW, "epoch", "x"])
    table = table[table["mean"] > FLOOR]
    if table.empty or table["epoch"].nunique() < 2:
        return None
    domain, epochs = fitting(table["mean"], log=True), (int(table["epoch"].min()), int(table["epoch"].max()))
    reach = (1, int(table["x"].max()))
    panels = [
        gradient_panel(
            here.drop(columns=[ROW, "low", "high"]), title=str(row), domain=domain, reach=reach, epochs=epochs
        )
        for row, here in table.groupby(ROW, sort=False)
    ]
    return Figure(
        name=f"spectra_over_training{subject.suffix}",
        title="Singular values over training",
        caption=(
            f"{OF_WHAT}Singular values s_i / s_1 of the last layer, mean over the seeds of a row; 0 is before training."
            f"{_left_out(subject, found)}"
        ),
        alt=f"{len(panels)} rows, epochs {epochs[0]} to {epochs[1]}.",
        spec=side_by_side(panels, columns=4),
    )


def _depth(subject: Subject, found: Probed) -> Figure | None:
    """How far tokens have collapsed at each layer, before and after training."""
    table = rows_alike(found.depth, [ROW, "measure", MOMENT, "x"])
    if table.empty:
        return None
    panels = [
        line_panel(here.drop(columns="measure"), _looks(subject, table), x="layer", title=str(measure))
        for measure, here in table.groupby("measure", sort=False)
    ]
    shown = table[(table["measure"] == TOLD) & (table[MOMENT] == AFTER)]
    return Figure(
        name=f"collapse_over_depth{subject.suffix}",
        title="Collapse over depth",
        caption=(
            f"{OF_WHAT}The residual is what is left of the tokens without their mean in the (1,inf) norm, 0 where all "
            "tokens are equal; a stable rank of 1 is rank one, whichever. Dashed before training, whole after it. "
            f"{BANDS}, after training only.{_left_out(subject, found)}"
        ),
        alt=f"{TOLD} of the last layer after training: "
        + ", ".join(f"{row} {value:.3g}" for row, value in shown.groupby(ROW, sort=False)["mean"].last().items()),
        spec=side_by_side(panels, columns=4),
    )


def _training(subject: Subject, found: Probed) -> Figure | None:
    """How far tokens have collapsed at each epoch that was probed."""
    table = rows_alike(found.training, [ROW, "measure", "x"])
    if table.empty or table["x"].nunique() < 2:
        return None
    panels = [
        line_panel(here.drop(columns="measure"), _looks(subject, table), x="epoch", title=str(measure))
        for measure, here in table.groupby("measure", sort=False)
    ]
    ends = table[table["measure"] == TOLD].groupby(ROW, sort=False)["mean"].agg(["first", "last"])
    return Figure(
        name=f"collapse_over_training{subject.suffix}",
        title="Collapse over training",
        caption=f"{OF_WHAT}Means over the layers; epoch 0 is before training. {BANDS}.{_left_out(subject, found)}",
        alt=f"{TOLD} before and after training, mean over the layers: "
        + ", ".join(f"{row} {first:.3g} and {last:.3g}" for row, (first, last) in ends.iterrows()),
        spec=side_by_side(panels, columns=4),
    )


def _looks(subject: Subject, table: pd.DataFrame) -> dict[str, Look]:
    drawn = set(table[ROW])
    return {row.name: row.look for row in subject.telling if row.name in drawn}


def _left_out(subject: Subject, found: Probed) -> str:
    runs = f" {found.without} runs without a readable {SPECTRUM} are left out." if found.without else ""
    return subject.told(subject.telling) + runs


def _probed(subject: Subject) -> Probed | None:
    """Everything that figures need of a table's files, one file after the other."""
    parts: dict[str, list[tuple[object, ...]]] = {name: [] for name in COLUMNS}
    depths: dict[int, None] = {}
    first: dict[str, tuple[RunRecord, ProbeRecord]] = {}
    without = 0
    for row in subject.telling:
        for run in row.runs:
            try:
                record = ProbeRecord.load(run.folder / SPECTRUM)
                found = {name: list(values) for name, values in _values(record).items()}
            except (OSError, EOFError, KeyError, ValueError, IndexError, zipfile.BadZipFile, zlib.error):
                without += 1
                continue
            depths[len(record.attentions)] = None
            if record.heatmaps is not None:
                first.setdefault(row.name, (run, record))
            for name, values in found.items():
                parts[name] += [(row.name, *value) for value in values]
    if not depths:
        return None
    whole = {name: pd.DataFrame(parts[name], columns=[ROW, *columns, "value"]) for name, columns in COLUMNS.items()}
    return Probed(**whole, layers=_layer_titles(list(depths)), first=first, without=without)


def _values(record: ProbeRecord) -> dict[str, Iterator[tuple[object, ...]]]:
    """What one run adds to each of COLUMNS, its value last."""
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
    """At most so many records, the first and the last among them."""
    return [int(moment) for moment in thinned(np.arange(len(record.epochs)), most)]


def _points(values: np.ndarray) -> Iterator[tuple[int, float]]:
    """Singular values of INDICES and the last two (of which the mean takes one), by their index from 1."""
    known = values[np.isfinite(values)]
    count = len(known)
    return ((i, float(known[i - 1])) for i in range(1, count + 1) if i in INDICES or i >= count - 1)


def _chosen_layers(depth: int) -> list[int]:
    """At most MOST_LAYERS of so many layers, counted from 0, the first and the last among them."""
    return [int(layer) for layer in thinned(np.arange(depth), MOST_LAYERS)]


def _layer_titles(depths: Sequence[int]) -> list[str]:
    """What the chosen layers are called, in models of one or several depths."""
    titles: list[dict[str, None]] = [{} for _ in range(max(len(_chosen_layers(depth)) for depth in depths))]
    for depth in depths:
        for title, layer in zip(titles, _chosen_layers(depth), strict=False):
            title[f"{layer + 1} of {depth}"] = None
    return [f"Layer {', '.join(title)}" for title in titles]
