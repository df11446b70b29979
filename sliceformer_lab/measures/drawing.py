"""The one way to draw: panels in a grid above one legend, in one style, as PNG, PDF or SVG."""

from __future__ import annotations

import io
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from textwrap import wrap
from typing import Any

import matplotlib as mpl
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, fontManager, get_font
from matplotlib.lines import Line2D
from matplotlib.typing import LineStyleType
from PIL import Image

from sliceformer_lab.runs.files import whole_bytes

# Okabe and Ito's colours, distinguishable with any colour vision
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = "osD^vPX"
GRADIENT = mpl.colormaps["viridis"]
ATTENTION_COLOURS = COLOURS[:-1]  # without black, which is invisible in dark mode
CONTROL_COLOURS = ("#767676", "#A0A0A0")
LINES: tuple[LineStyleType, ...] = ("-", "--")
CONTROL_LINE: LineStyleType = ":"
INK, MUTED, LINE = "#1b2026", "#59636e", "#d9dee3"  # of words; of what is not a row: chance, references; of axes
VARIABLES = {INK: "var(--ink)", MUTED: "var(--muted)", LINE: "var(--line)"}  # of the page, for both colour schemes
# an installed font with such a name writes the letters that matplotlib's own font lacks
ASIAN_FONTS = re.compile(
    "CJK|Source Han|WenQuanYi|Fallback|UMing|PingFang|Hiragino|Heiti|YaHei|SimHei|Gothic|Unicode MS"
)
PANEL_INCHES = (2.9, 2.4)
DPI = 144  # of PNG files
NUM_COLOURS = 256  # of a PNG without photographs: a fraction of the size of one with all colours
LETTER_INCHES, ENTRY_INCHES, SYMBOL_INCHES = 0.07, 0.2, 0.6  # of a legend: a letter, a line, and its symbol with gaps
HEADING_LETTERS, HEADING_LINE_INCHES = 10.5, 0.2  # letters an inch; the height of a line
LEGEND_SPACING = 0.5  # letters between its entries
SWATCH_INCHES = (0.4, 0.17)  # of an entry of a legend on the page
STYLE: Any = {
    "font.family": ["sans-serif", *sorted(filter(ASIAN_FONTS.search, fontManager.get_font_names()))[:1]],
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
    "figure.titlesize": 10,
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

Panel = Callable[[Any], None]  # draws on axes of its own
EMPTY: Panel = Axes.set_axis_off  # only fills its place in the grid


@dataclass(frozen=True)
class Look:
    """Colour, marker and line style of a row, as matplotlib names them."""

    colour: str
    marker: str
    line: LineStyleType = "-"


@dataclass(frozen=True, kw_only=True)
class Chart:
    """Panels of `size` inches each, in at most `columns` columns, above one legend."""

    name: str = ""  # of its files
    panels: Sequence[Panel]
    legend: Sequence[Line2D] = ()
    heading: str = ""  # above the panels
    size: tuple[float, float] = PANEL_INCHES
    columns: int = 3
    has_outer_labels: bool = False  # axes that are equal in a row or column have numbers at the left and below only
    is_3d: bool = False


def look_at(place: int, control: bool) -> Look:
    """The look with this number among those of attentions, or of controls."""
    colours = CONTROL_COLOURS if control else ATTENTION_COLOURS
    turn, colour = divmod(place, len(colours))
    marker = MARKERS[-1 - place % len(MARKERS)] if control else MARKERS[(colour + turn) % len(MARKERS)]
    return Look(colours[colour], marker, CONTROL_LINE if control else LINES[turn % len(LINES)])


def looks_of(names: Mapping[str, bool]) -> dict[str, Look]:
    """A look for each name, which says whether it is a control."""
    places: dict[bool, list[str]] = {True: [], False: []}
    for name, control in names.items():
        places[control].append(name)
    return {name: look_at(places[control].index(name), control) for name, control in names.items()}


def legend_of(looks: Mapping[str, Look], *, lines: bool = True) -> list[Line2D]:
    """An entry for each row, with its line or without."""
    return [
        Line2D([], [], color=look.colour, marker=look.marker, linestyle=look.line if lines else "none", label=name)
        for name, look in looks.items()
    ]


def draw_pixels(axes: Axes, pixels: Any, **style: Any) -> None:
    """A picture or matrix without numbers at its sides."""
    axes.imshow(pixels, interpolation="nearest", **style)
    axes.set(xticks=[], yticks=[])


def shorten_path(text: str, longest: int = 36) -> str:
    """The end of a path, which names the example; ? is a letter that no installed font has."""
    text = "".join(letter if _can_write(letter) else "?" for letter in text)
    return text if len(text) <= longest else f"…{text[1 - longest :]}"


def names_in_picture(names: Sequence[str]) -> tuple[Sequence[str], str]:
    """The names of classes or targets for a picture, and a remark.

    A name with a letter that no installed font has is its number, and the remark says so; else the remark is ''.
    """
    written = [name if _can_write(name) else str(number) for number, name in enumerate(names)]
    remark = "; some names are numbers: no font here has their letters (Noto Sans CJK has Chinese, Japanese, Korean)"
    return written, "" if written == list(names) else remark


def _can_write(text: str) -> bool:
    return all(ord(letter) in _known_letters() for letter in text if not letter.isspace())


@cache
def _known_letters() -> frozenset[int]:
    """The code points of all letters that the fonts of STYLE have."""
    fonts = [get_font(findfont(FontProperties(family=[name]))) for name in STYLE["font.family"]]
    return frozenset(code for font in fonts for code in font.get_charmap())


def svg_panels(chart: Chart) -> list[str]:
    """Each panel as an SVG element whose texts and lines have the colours of the page."""
    found = []
    for number, panel in enumerate(chart.panels):
        with rc_context({**STYLE, "svg.hashsalt": f"{chart.name}-{number}"}):
            figure = Figure(figsize=chart.size, layout="constrained")
            panel(figure.add_subplot())
            found.append(_render_svg(figure))
    return found


def svg_legend(chart: Chart) -> list[tuple[str, str]]:
    """The name of each entry of the legend, and its line and symbol as SVG."""
    found = []
    for entry in chart.legend:
        with rc_context(STYLE):
            size = max(SWATCH_INCHES[1], entry.get_markersize() / 72)
            figure = Figure(figsize=(SWATCH_INCHES[0], size))
            line = Line2D([0, 0.5, 1], [0.5] * 3, markevery=[1], transform=figure.transFigure)
            line.update_from(entry)
            figure.add_artist(line)
            found.append((str(entry.get_label()), _render_svg(figure)))
    return found


def write_charts(charts: Sequence[Chart], folder: Path) -> list[Path]:
    """Write each chart to NAME.png and NAME.pdf in a folder; returns the paths."""
    folder.mkdir(parents=True, exist_ok=True)
    logging.getLogger("fontTools").setLevel(logging.WARNING)  # it reports each table of a font
    paths = []
    for chart in charts:
        figure = draw_chart(chart)
        for ending, picture in {"png": _render_png(figure), "pdf": _render(figure, "pdf")}.items():
            paths.append(folder / f"{chart.name}.{ending}")
            with whole_bytes(paths[-1]) as file:
                file.write(picture)
    return paths


def save_chart(chart: Chart, path: Path) -> None:
    """Write a PNG whole or not at all."""
    with whole_bytes(path) as file:
        file.write(png_of_chart(chart))


def png_of_chart(chart: Chart) -> bytes:
    """The picture of a chart."""
    return _render_png(draw_chart(chart))


@rc_context(STYLE)
def draw_chart(chart: Chart) -> Figure:
    """All panels in a grid, the heading above them, and the legend below them."""
    (width, height), count = chart.size, len(chart.panels)
    columns = min(chart.columns, count)
    rows = -(-count // columns)
    entry_inches = SYMBOL_INCHES + LETTER_INCHES * max((len(str(one.get_label())) for one in chart.legend), default=0)
    wide = max(columns * width, entry_inches if chart.legend else 0.0)
    lines = -(-len(chart.legend) // max(1, int(wide / entry_inches)))  # of the legend
    entries = -(-len(chart.legend) // max(1, lines))  # side by side, as many in each line
    largest = max((entry.get_markersize() for entry in chart.legend), default=0.0) / STYLE["font.size"]  # in letters
    spacing = max(LEGEND_SPACING, 0.8 * largest - 1)
    below = ENTRY_INCHES * (1 + spacing) / (1 + LEGEND_SPACING) * lines
    heading = [part for line in chart.heading.splitlines() for part in wrap(line, int(HEADING_LETTERS * wide))]
    above = HEADING_LINE_INCHES * len(heading)
    figure = Figure(figsize=(wide, rows * height + below + above), layout="compressed")
    for place, panel in enumerate(chart.panels, start=1):
        axes = figure.add_subplot(rows, columns, place, projection="3d" if chart.is_3d else None)
        panel(axes)
        if chart.has_outer_labels:
            axes.label_outer()
    if chart.legend:
        figure.legend(handles=chart.legend, loc="outside lower center", ncols=entries, labelspacing=spacing)
    if heading:
        figure.suptitle("\n".join(heading))
    return figure


@rc_context(STYLE)
def _render_png(figure: Figure) -> bytes:
    """A PNG, with few colours if it has no pictures."""
    content = _render(figure, "png")
    if any(axes.images for axes in figure.axes):
        return content
    with Image.open(io.BytesIO(content)) as pixels, io.BytesIO() as file:
        few = pixels.convert("RGB").quantize(NUM_COLOURS, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
        few.save(file, format="PNG", optimize=True)
        return file.getvalue()


def _render_svg(figure: Figure) -> str:
    """The element alone: without metadata and names of groups, with two decimals of a point."""
    text = _render(figure, "svg").decode()
    text = re.sub(r"<metadata>.*?</metadata>| id=\"[a-zA-Z]+\d*_\d+\"", "", text[text.index("<svg") :], flags=re.DOTALL)
    text = re.sub(r" d=\"[^\"]*\"", lambda path: re.sub(r"(\.\d\d)\d+|\n", r"\1", path[0]), text)
    return re.sub("(?<=fill: |roke: )(" + "|".join(VARIABLES) + ")", lambda colour: VARIABLES[colour[0]], text)


@rc_context(STYLE)
def _render(figure: Figure, kind: str) -> bytes:
    with io.BytesIO() as file:
        metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind)
        figure.savefig(file, format=kind, dpi=DPI, transparent=kind == "svg", metadata=metadata)
        return file.getvalue()
