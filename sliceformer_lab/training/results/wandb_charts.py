"""Draws the spectra of a run as W&B charts, presets that every W&B server has."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import wandb
from numpy.typing import NDArray
from wandb.plot.custom_chart import CustomChart

from sliceformer_lab.measures.plots import DEPTH_PANELS, MIN_SINGULAR_VALUE, PLACES_SHOWN, describe_moment
from sliceformer_lab.measures.probe_record import ProbeRecord

SPECTRUM_BY_LAYER = "charts/spectrum_by_layer"
SPECTRUM_OVER_TRAINING = "charts/spectrum_over_training"
BY_DEPTH = {  # chart key: measure, form and title
    f"charts/{measure}{'' if form == 'raw' else '_centred'}_by_depth": (measure, form, title)
    for measure, form, title in DEPTH_PANELS
}
LINE_SERIES = "wandb/lineseries/v0"
LINE_SERIES_FIELDS = {"step": "step", "lineKey": "lineKey", "lineVal": "lineVal"}
MAX_MOMENTS = 6  # lines in the chart over training

Lines = Mapping[str, tuple[NDArray[np.float64], NDArray[np.float64]]]  # x and y by name


def result_row(folder: Path, pictures: Sequence[Path]) -> dict[str, Any]:
    """The row that ends the history of a run: its pictures, and charts of its spectra."""
    row: dict[str, Any] = {f"pictures/{picture.stem}": [wandb.Image(str(picture))] for picture in pictures}
    if (folder / "spectrum.npz").is_file():
        row |= spectrum_charts(ProbeRecord.load(folder / "spectrum.npz"))
    return row


def spectrum_charts(record: ProbeRecord) -> dict[str, CustomChart]:
    """Charts by key: singular spectra by layer and over training, and the measures of DEPTH_PANELS by depth.

    The preset has no logarithmic axis, so spectra are log10 of s_i / s_1. All values are means over the samples.
    """
    samples = f"mean over {len(record.sample_ids)} samples"
    output = PLACES_SHOWN["output"].lower()
    layers = record.at("spectrum", "output", "raw")
    chosen = np.unique(np.linspace(0, len(record.epochs) - 1, MAX_MOMENTS).round().astype(int))
    charts = {
        SPECTRUM_BY_LAYER: _draw_chart(
            {f"layer {i}": _log_spectrum(values) for i, values in enumerate(layers, start=1)},
            f"log10 of s_i / s_1, {output}, {samples}",
            "index i of the singular value",
        ),
        SPECTRUM_OVER_TRAINING: _draw_chart(
            {
                describe_moment(record, i): _log_spectrum(record.at("spectrum", "output", "raw", moment=i).mean(0))
                for i in chosen
            },
            f"log10 of s_i / s_1, {output}, {samples} and the layers",
            "index i of the singular value",
        ),
    }
    depth = np.arange(1, len(record.attentions) + 1, dtype=np.float64)
    moments = [0, -1] if len(record.epochs) > 1 else [-1]
    for key, (measure, form, title) in BY_DEPTH.items():
        lines = {
            f"{label}, {describe_moment(record, moment)}": (depth, record.at(measure, place, form, moment=moment))
            for place, label in PLACES_SHOWN.items()
            for moment in moments
        }
        charts[key] = _draw_chart(lines, f"{title}, {samples}", "layer")
    return charts


def _log_spectrum(values: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Index and log10 of the singular values (R,) above rounding error."""
    kept = values[values > MIN_SINGULAR_VALUE]  # drops the NaN that pads shorter matrices
    return np.arange(1, len(kept) + 1, dtype=np.float64), np.log10(kept)


def _draw_chart(lines: Lines, title: str, xname: str) -> CustomChart:
    """A line per name, without the points that are not finite."""
    known = {name: (x[np.isfinite(y)].tolist(), y[np.isfinite(y)].tolist()) for name, (x, y) in lines.items()}
    xs, ys = [x for x, _ in known.values()], [y for _, y in known.values()]
    return wandb.plot.line_series(xs, ys, keys=list(known), title=title, xname=xname)


def results_table(records: Sequence[Mapping[str, Any]]) -> wandb.Table:
    """A W&B table, with None for NaN and without empty columns."""
    names = dict.fromkeys(name for record in records for name, value in record.items() if _is_known(value))
    rows: list[Any] = [
        [record.get(name) if _is_known(record.get(name)) else None for name in names] for record in records
    ]
    return wandb.Table(columns=list(names), data=rows, allow_mixed_types=True)


def _is_known(value: Any) -> bool:
    return value is not None and not (isinstance(value, float) and math.isnan(value))
