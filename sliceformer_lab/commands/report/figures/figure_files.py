"""Writes figures as PNG and PDF files, in one style for papers."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import vl_convert
from PIL import Image

from sliceformer_lab.commands.report.figures.figure import Figure

FONT = "Arial, Helvetica, Liberation Sans, DejaVu Sans, sans-serif"
PNG_SCALE = 2  # PNG pixels for each pixel of the specification
NUM_COLOURS = 256  # of a PNG: a tenth of the size of one with all colours
STYLE: dict[str, Any] = {
    "background": "white",
    "font": FONT,
    "view": {"stroke": "#888888"},
    "axis": {
        **{"labelFontSize": 11, "titleFontSize": 12, "titleFontWeight": "normal", "labelColor": "black"},
        **{"gridColor": "#E6E6E6", "domainColor": "#888888", "tickColor": "#888888"},
    },
    "legend": {
        "labelFontSize": 12,
        "titleFontSize": 12,
        "orient": "bottom",
        "columns": 4,
        "labelLimit": 320,
        "titleLimit": 320,
        "layout": {"bottom": {"direction": "vertical", "margin": 6}},
    },
    "title": {"fontSize": 12, "fontWeight": "bold", "anchor": "start"},
    "header": {"labelFontSize": 12, "titleFontSize": 12},
}


def write_figures(figures: Sequence[Figure], folder: Path) -> list[Path]:
    """Write each figure to folder/figures/NAME.png and NAME.pdf; returns the paths."""
    place = folder / "figures"
    place.mkdir(parents=True, exist_ok=True)
    paths = []
    for figure in figures:
        drawing = vl_convert.vegalite_to_svg(figure.spec, config=STYLE)
        pictures = {".png": _png_of(drawing), ".pdf": vl_convert.svg_to_pdf(drawing)}
        for suffix, picture in pictures.items():
            path = place / f"{figure.name}{suffix}"
            path.write_bytes(picture)
            paths.append(path)
    return paths


def png_of_figure(figure: Figure) -> bytes:
    """The picture of a figure, in the style of the files."""
    return _png_of(vl_convert.vegalite_to_svg(figure.spec, config=STYLE))


def _png_of(drawing: str) -> bytes:
    with Image.open(io.BytesIO(vl_convert.svg_to_png(drawing, scale=PNG_SCALE))) as pixels, io.BytesIO() as file:
        few = pixels.convert("RGB").quantize(NUM_COLOURS, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
        few.save(file, format="PNG")
        return file.getvalue()
