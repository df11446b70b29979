"""Draws figures: panel by panel as SVG for the page, and whole as PNG and PDF for papers."""

from __future__ import annotations

import io
import logging
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure as Drawing
from matplotlib.lines import Line2D
from PIL import Image

from sliceformer_lab.commands.report.figures.figure import MUTED, Figure

INK, LINE = "#1b2026", "#d9dee3"
VARIABLES = {INK: "var(--ink)", MUTED: "var(--muted)", LINE: "var(--line)"}  # of the page, for both colour schemes
DPI = 144  # of PNG files
NUM_COLOURS = 256  # of a PNG: a fraction of the size of one with all colours
LETTER_INCHES, ENTRY_INCHES = 0.07, 0.2  # of a legend
LEGEND_SPACING = 0.5  # letters between its entries
SWATCH_INCHES = (0.4, 0.17)  # of an entry of a legend on the page
STYLE: Any = {
    "font.size": 9,
    "text.color": INK,
    "text.parse_math": False,  # names come from files
    "axes.titlesize": 9,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelcolor": INK,
    "axes.edgecolor": LINE,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": LINE,
    "grid.linewidth": 0.5,
    "xtick.color": LINE,
    "ytick.color": LINE,
    "xtick.labelcolor": MUTED,
    "ytick.labelcolor": MUTED,
    "lines.markersize": 4,
    "legend.frameon": False,
    "svg.fonttype": "none",  # the page's own font
    "pdf.fonttype": 42,
}


def svg_panels(figure: Figure) -> list[str]:
    """Each panel as an SVG element whose texts and lines have the colours of the page."""
    found = []
    for number, panel in enumerate(figure.panels):
        with rc_context({**STYLE, "svg.hashsalt": f"{figure.name}-{number}"}):
            drawing = Drawing(figsize=figure.size, layout="constrained")
            panel(drawing.add_subplot())
            found.append(_render_svg(drawing))
    return found


def svg_legend(figure: Figure) -> list[tuple[str, str]]:
    """The name of each entry of the legend, and its line and symbol as SVG."""
    found = []
    for entry in figure.legend:
        with rc_context(STYLE):
            size = max(SWATCH_INCHES[1], entry.get_markersize() / 72)
            drawing = Drawing(figsize=(SWATCH_INCHES[0], size))
            line = Line2D([0, 0.5, 1], [0.5] * 3, markevery=[1], transform=drawing.transFigure)
            line.update_from(entry)
            drawing.add_artist(line)
            found.append((str(entry.get_label()), _render_svg(drawing)))
    return found


def write_figures(figures: Sequence[Figure], folder: Path) -> list[Path]:
    """Write each figure to folder/figures/NAME.png and NAME.pdf; returns the paths."""
    place = folder / "figures"
    place.mkdir(parents=True, exist_ok=True)
    logging.getLogger("fontTools").setLevel(logging.WARNING)  # it reports each table of a font
    paths = []
    for figure in figures:
        drawing = _draw_whole(figure)
        for suffix, picture in {".png": _render_png(drawing), ".pdf": _render(drawing, "pdf")}.items():
            path = place / f"{figure.name}{suffix}"
            path.write_bytes(picture)
            paths.append(path)
    return paths


def png_of_figure(figure: Figure) -> bytes:
    """The picture of a figure, in the style of the files."""
    return _render_png(_draw_whole(figure))


@rc_context(STYLE)
def _draw_whole(figure: Figure) -> Drawing:
    """All panels in a grid, and the legend below them."""
    (width, height), count = figure.size, len(figure.panels)
    columns = min(figure.columns, count)
    rows = -(-count // columns)
    letters = max((len(str(entry.get_label())) for entry in figure.legend), default=0)
    entries = max(1, int(columns * width / (0.6 + LETTER_INCHES * letters)))  # of the legend, side by side
    largest = max((entry.get_markersize() for entry in figure.legend), default=0.0) / STYLE["font.size"]  # in letters
    spacing = max(LEGEND_SPACING, 0.8 * largest - 1)
    below = ENTRY_INCHES * (1 + spacing) / (1 + LEGEND_SPACING) * -(-len(figure.legend) // entries)
    drawing = Drawing(figsize=(columns * width, rows * height + below), layout="constrained")
    for place, panel in enumerate(figure.panels, start=1):
        panel(drawing.add_subplot(rows, columns, place))
    if figure.legend:
        drawing.legend(handles=figure.legend, loc="outside lower center", ncols=entries, labelspacing=spacing)
    return drawing


def _render_png(drawing: Drawing) -> bytes:
    with Image.open(io.BytesIO(_render(drawing, "png"))) as pixels, io.BytesIO() as file:
        few = pixels.convert("RGB").quantize(NUM_COLOURS, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
        few.save(file, format="PNG")
        return file.getvalue()


def _render_svg(drawing: Drawing) -> str:
    """The element alone: without metadata and names of groups, with two decimals of a point."""
    text = _render(drawing, "svg").decode()
    text = re.sub(r"<metadata>.*?</metadata>| id=\"[a-zA-Z]+\d*_\d+\"", "", text[text.index("<svg") :], flags=re.DOTALL)
    text = re.sub(r" d=\"[^\"]*\"", lambda path: re.sub(r"(\.\d\d)\d+|\n", r"\1", path[0]), text)
    return re.sub("(?<=fill: |roke: )(" + "|".join(VARIABLES) + ")", lambda colour: VARIABLES[colour[0]], text)


@rc_context(STYLE)
def _render(drawing: Drawing, kind: str) -> bytes:
    with io.BytesIO() as file:
        metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind)
        drawing.savefig(file, format=kind, dpi=DPI, transparent=kind == "svg", metadata=metadata)
        return file.getvalue()
