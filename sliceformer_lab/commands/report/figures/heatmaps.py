"""Heatmaps of attention outputs: one head of one run on one sample, layer by layer."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping

import altair as alt
import matplotlib as mpl
import numpy as np
import pandas as pd
from numpy.typing import NDArray
from PIL import Image

from sliceformer_lab.commands.report.figures.figure import Figure, inline, side_by_side, subsample
from sliceformer_lab.commands.report.figures.plot_rows import PlotTable
from sliceformer_lab.measures.probe import ProbeRecord
from sliceformer_lab.runs.collect import RunRecord

MOST_LAYERS = 4
MOST_TOKENS, MOST_CHANNELS = 96, 64  # shown in a heatmap
PANEL_PIXELS = 160  # of a panel, in pixels
MIN_IMAGE_PIXELS = 160  # pixels of the image's shorter side; viewers smooth smaller images
MAP = mpl.colormaps["PuOr_r"]


def heatmaps(plotted: PlotTable, records: Mapping[str, tuple[RunRecord, ProbeRecord]]) -> list[Figure]:
    """A row of heatmaps for each table row whose first run has them; empty if none has."""
    panels, runs = [], []
    for name, (run, record) in records.items():
        for layer in subsample(np.arange(len(record.attentions)), MOST_LAYERS):
            if record.heatmaps is not None and np.isfinite(record.heatmaps[layer]).any():
                panels.append(_panel(record.heatmaps[layer], [name, f"layer {layer + 1}"]))
        runs.append(f"{name}: {run.name}")
    if not panels:
        return []
    without = len(plotted.main_rows) - len(records)
    missing = f" {without} rows have no heatmaps." if without else ""
    return [
        Figure(
            name=f"heatmaps{plotted.suffix}",
            title="Attention outputs",
            caption=(
                "Operator output of the first validation sample after training. Rows are tokens, columns are channels "
                "of head 0; violet is negative, orange positive, and each heatmap has its own scale. Equal tokens "
                f"appear as vertical stripes. This is one sample of one run. Runs: {'; '.join(runs)}.{missing}"
                f"{plotted.omission(plotted.main_rows)}"
            ),
            alt=f"{len(panels)} heatmaps of {len(records)} rows: tokens by channels of the operator output.",
            spec=side_by_side(panels, columns=MOST_LAYERS),
        )
    ]


def _panel(values: NDArray[np.float32], title: list[str]) -> alt.Chart:
    """The heatmap of one token matrix (N, D), without its NaN columns."""
    known = values[:MOST_TOKENS, ~np.isnan(values).all(axis=0)][:, :MOST_CHANNELS]
    num_tokens, num_channels = known.shape
    place = pd.DataFrame(
        {"picture": [_picture(known)], "left": 0, "right": num_channels, "top": 0, "bottom": num_tokens}
    )
    down = alt.Scale(domain=[0, num_tokens], reverse=True, nice=False)
    axis = alt.Axis(tickCount=3, tickMinStep=1, grid=False)
    panel: alt.Chart = (
        alt.Chart(inline(place))
        .mark_image(aspect=False, smooth=False)
        .encode(
            x=alt.X("left:Q", scale=alt.Scale(domain=[0, num_channels], nice=False), axis=axis).title(None),
            x2=alt.X2("right:Q"),
            y=alt.Y("top:Q", scale=down, axis=axis).title(None),
            y2=alt.Y2("bottom:Q"),
            url=alt.Url("picture:N"),
        )
        .properties(width=PANEL_PIXELS, height=PANEL_PIXELS, title=alt.TitleParams(title))
    )
    return panel


def _picture(values: NDArray[np.float32]) -> str:
    """The matrix as a data URL of a PNG, white at 0."""
    largest = max(float(np.nanmax(np.abs(values))), 1e-30)
    colours = MAP(np.nan_to_num(0.5 + 0.5 * values / largest, nan=0.5))[..., :3]
    pixels = Image.fromarray((255 * colours).round().astype(np.uint8))
    zoom = max(1, -(-MIN_IMAGE_PIXELS // min(pixels.size)))
    with io.BytesIO() as file:
        big = pixels.resize((zoom * pixels.width, zoom * pixels.height), Image.Resampling.NEAREST)
        big.quantize(256).save(file, format="PNG", optimize=True)
        return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()
