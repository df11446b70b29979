"""Pictures of segmentations: image, true mask and predicted mask side by side, and the colours of classes."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from sliceformer_lab.measures.drawing import Chart, Panel, draw_pixels, save_chart, shorten_path

HEADS = ("image", "true mask", "predicted mask")
NO_CLASS = "white"
MAX_LEGEND_CLASSES = 40  # classes in the legend
MAX_NAME_CHARACTERS, MAX_PLACE_CHARACTERS = 24, 40  # characters
SIDE_INCHES = 2.9  # the width of a picture
GOLDEN = 0.618  # share of the colour circle between two neighbouring classes of many


@dataclass(frozen=True)
class Segmented:
    """An image with its masks. Negative classes of the truth are pixels without one."""

    place: str
    picture: NDArray[Any]  # (H, W, 3) uint8
    truth: NDArray[Any]  # (H, W)
    answer: NDArray[Any]  # (H, W)
    note: str  # how good the answer is


def class_colours(count: int) -> NDArray[np.uint8]:
    """One colour for each class (count, 3): of up to 20 those of tab20, the strong ones first."""
    if count <= 20:
        found = np.array([mpl.colormaps["tab20"](2 * i if i < 10 else 2 * i - 19)[:3] for i in range(count)])
    else:
        rank = np.arange(count)
        shades = np.stack([rank * GOLDEN % 1, 0.5 + 0.5 * (rank % 2), 1 - 0.25 * (rank % 3)], axis=1)
        found = mpl.colors.hsv_to_rgb(shades)
    return np.asarray(np.round(255 * found), dtype=np.uint8)


def plot_masks(shown: Sequence[Segmented], names: Sequence[str], path: Path, title: str) -> None:
    """Draw a row for each image, and a legend of the classes in their masks."""
    colours = class_colours(len(names))
    height, width = shown[0].truth.shape
    panels: list[Panel] = []
    for one in shown:
        drawn = (one.picture, _colour_mask(one.truth, colours), _colour_mask(one.answer, colours))
        heads = (shorten_path(one.place, MAX_PLACE_CHARACTERS), HEADS[1], f"{HEADS[2]}: {one.note}")
        panels += [partial(_draw_pixels, pixels=pixels, head=head) for pixels, head in zip(drawn, heads, strict=True)]
    classes, unknown = _find_classes(shown)
    entries = [
        (textwrap.shorten(names[one], MAX_NAME_CHARACTERS, placeholder="…"), colours[one] / 255)
        for one in classes[:MAX_LEGEND_CLASSES]
    ]
    if len(classes) > MAX_LEGEND_CLASSES:
        entries.append((f"and {len(classes) - MAX_LEGEND_CLASSES} more", "none"))
    if unknown:
        entries.append(("no class", NO_CLASS))
    legend = [
        Line2D([], [], linestyle="none", marker="s", markersize=9, color=colour, markeredgecolor="0.6", label=label)
        for label, colour in entries
    ]
    size = (SIDE_INCHES, SIDE_INCHES * height / width + 0.3)
    save_chart(Chart(panels=panels, legend=legend, heading=title, size=size, columns=len(HEADS)), path)


def _draw_pixels(axes: Axes, pixels: NDArray[Any], head: str) -> None:
    draw_pixels(axes, pixels)
    axes.set_title(head, fontsize=8, weight="normal")


def _colour_mask(mask: NDArray[Any], colours: NDArray[np.uint8]) -> NDArray[np.uint8]:
    known = colours[np.clip(mask, 0, len(colours) - 1)]
    return np.where((mask < 0)[..., None], np.uint8(255), known)


def _find_classes(shown: Sequence[Segmented]) -> tuple[list[int], bool]:
    """The classes in the masks, and whether the truth has pixels without one."""
    found = np.unique(np.concatenate([mask.ravel() for one in shown for mask in (one.truth, one.answer)]).astype(int))
    return found[found >= 0].tolist(), bool((found < 0).any())
