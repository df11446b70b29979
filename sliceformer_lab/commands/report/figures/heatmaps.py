"""Attention outputs as pictures: what one head of one run makes of one sample, layer by layer."""

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

from sliceformer_lab.commands.report.figures.figure import Figure, inline, side_by_side, thinned
from sliceformer_lab.commands.report.figures.line_rows import Subject
from sliceformer_lab.measures.probe import ProbeRecord
from sliceformer_lab.runs.collect import RunRecord

MOST_LAYERS = 4
MOST_TOKENS, MOST_CHANNELS = 96, 64  # of a picture
SIDE = 160
SMALLEST = 160  # pixels of its shorter side, so that nobody smooths them
MAP = mpl.colormaps["PuOr_r"]


def heatmaps(subject: Subject, records: Mapping[str, tuple[RunRecord, ProbeRecord]]) -> list[Figure]:
    """A line of pictures for each row whose first run kept one; none where no run did."""
    panels, runs = [], []
    for name, (run, record) in records.items():
        for layer in thinned(np.arange(len(record.attentions)), MOST_LAYERS):
            if record.heatmaps is not None and np.isfinite(record.heatmaps[layer]).any():
                panels.append(_panel(record.heatmaps[layer], [name, f"layer {layer + 1}"]))
        runs.append(f"{name}: {run.name}")
    if not panels:
        return []
    without = len(subject.telling) - len(records)
    missing = f" {without} rows are left out, whose runs kept no such picture." if without else ""
    return [
        Figure(
            name=f"heatmaps{subject.suffix}",
            title="Attention outputs",
            caption=(
                "The operator's output of the first validation sample at the end of training: tokens down, channels "
                "of head 0 across, violet below 0 and orange above it, each picture on its own scale. Equal tokens "
                f"are vertical stripes. One sample of one run says nothing of others. Runs: {'; '.join(runs)}.{missing}"
                f"{subject.told(subject.telling)}"
            ),
            alt=f"{len(panels)} pictures of {len(records)} rows: tokens by channels of the operator's output.",
            spec=side_by_side(panels, columns=MOST_LAYERS),
        )
    ]


def _panel(values: NDArray[np.float32], title: list[str]) -> alt.Chart:
    """One matrix of tokens (N, D), its NaN columns left out."""
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
        .properties(width=SIDE, height=SIDE, title=alt.TitleParams(title))
    )
    return panel


def _picture(values: NDArray[np.float32]) -> str:
    """The matrix as the address of a PNG, white at 0."""
    largest = max(float(np.nanmax(np.abs(values))), 1e-30)
    colours = MAP(np.nan_to_num(0.5 + 0.5 * values / largest, nan=0.5))[..., :3]
    pixels = Image.fromarray((255 * colours).round().astype(np.uint8))
    zoom = max(1, -(-SMALLEST // min(pixels.size)))
    with io.BytesIO() as file:
        big = pixels.resize((zoom * pixels.width, zoom * pixels.height), Image.Resampling.NEAREST)
        big.quantize(256).save(file, format="PNG", optimize=True)
        return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()
