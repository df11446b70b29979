"""Pictures of segmentations: image, true mask and predicted mask side by side, and the colours of classes."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from numpy.typing import NDArray

from sliceformer_lab.measures.plots import save_figure, shorten_path, wrap_title

HEADS = ("image", "true mask", "predicted mask")
NO_CLASS = "white"
MAX_LEGEND_CLASSES = 40  # classes in the legend
MAX_NAME_CHARACTERS, MAX_PLACE_CHARACTERS = 24, 40  # characters
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
    side = 2.9
    figure = Figure(figsize=(3 * side + 0.4, (side * height / width + 0.3) * len(shown) + 1.6), layout="constrained")
    grid = figure.subplots(len(shown), len(HEADS), squeeze=False)
    for axes, one in zip(grid, shown, strict=True):
        drawn = (one.picture, _colour_mask(one.truth, colours), _colour_mask(one.answer, colours))
        heads = (shorten_path(one.place, MAX_PLACE_CHARACTERS), HEADS[1], f"{HEADS[2]}: {one.note}")
        for panel, pixels, head in zip(axes, drawn, heads, strict=True):
            panel.imshow(pixels, interpolation="nearest")
            panel.set_title(head, fontsize=8, parse_math=False)
            panel.set_xticks([])
            panel.set_yticks([])
    classes, unknown = _find_classes(shown)
    labels = [
        textwrap.shorten(names[one], MAX_NAME_CHARACTERS, placeholder="…") for one in classes[:MAX_LEGEND_CLASSES]
    ]
    patches = [Patch(facecolor=colours[one] / 255) for one in classes[:MAX_LEGEND_CLASSES]]
    if len(classes) > MAX_LEGEND_CLASSES:
        labels.append(f"and {len(classes) - MAX_LEGEND_CLASSES} more")
        patches.append(Patch(facecolor="none"))
    if unknown:
        labels.append("no class")
        patches.append(Patch(facecolor=NO_CLASS, edgecolor="0.6"))
    columns = max(1, int(3 * side * 11 / (max(map(len, labels)) + 7)))  # 11 characters an inch
    for patch, label in zip(patches, labels, strict=True):
        patch.set_label(label)
    figure.legend(
        handles=patches, loc="outside lower center", ncols=min(columns, len(labels)), frameon=False, fontsize=9
    )
    wrap_title(figure, title)
    save_figure(figure, path)


def _colour_mask(mask: NDArray[Any], colours: NDArray[np.uint8]) -> NDArray[np.uint8]:
    known = colours[np.clip(mask, 0, len(colours) - 1)]
    return np.where((mask < 0)[..., None], np.uint8(255), known)


def _find_classes(shown: Sequence[Segmented]) -> tuple[list[int], bool]:
    """The classes in the masks, and whether the truth has pixels without one."""
    found = np.unique(np.concatenate([mask.ravel() for one in shown for mask in (one.truth, one.answer)]).astype(int))
    return found[found >= 0].tolist(), bool((found < 0).any())
