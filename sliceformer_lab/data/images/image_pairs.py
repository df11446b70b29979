"""Images and their masks as files: which belong together, what their values mean, and how they are resized."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image

from sliceformer_lab.data.class_names import list_files
from sliceformer_lab.data.images.picture_files import ENDINGS, open_picture, read_picture
from sliceformer_lab.errors import DataError

MAX_CLASSES = 255  # that a byte holds besides "ignored"
GREY_STEPS = {"L;4": 17, "L;2": 85}  # by which Pillow multiplies the grey values of a PNG of 4 or 2 bits

Sizes = tuple[int, int]  # height, width
Values = tuple[int, ...] | None  # of the classes in their order; None: the value is the class


class Pair(NamedTuple):
    """An image and its mask."""

    image: Path
    mask: Path


def mask_classes(mask: np.ndarray, file: Path, values: Values, ignore: int | None) -> np.ndarray:
    """Class + 1 of each pixel of a mask (H, W) uint8, 0 where it has none. Raises DataError.

    `ignore` is the value of pixels without a class.
    """
    table = np.arange(1, 257)
    if values is not None:
        table = np.full(256, -1)
        table[list(values)] = np.arange(1, len(values) + 1)
    if ignore is not None and ignore not in (values or ()):
        table[ignore] = 0
    found = table[mask]
    if (found < 0).any():
        raise DataError(
            f"{file} holds the value {int(mask[found < 0][0])}, which is neither in data.values="
            f"{list(values or ())} nor data.ignore={ignore}; add it to data.values"
        )
    if found.max() > MAX_CLASSES:
        raise DataError(f"{file} holds the class 255, one more than fit; set data.ignore=255 or data.values")
    return np.asarray(found, dtype=np.uint8)


def read_pair(pair: Pair, sizes: Sizes, values: Values, ignore: int | None) -> tuple[np.ndarray, np.ndarray]:
    """An image with its mask as (4, H, W) uint8, and the pixels of each class + 1 before resizing (256,).

    Raises DataError if a file cannot be read, or if the two do not fit together.
    """
    with open_picture(pair.mask) as mask:
        if mask.mode not in ("L", "P", "1"):
            raise DataError(
                f"{pair.mask} has colours (mode {mask.mode}); a mask holds class numbers: save it as 8-bit grey, or "
                "with a palette"
            )
        tiles = getattr(mask, "tile", [])  # each with the form of its values in the file at place 3
        step = GREY_STEPS.get(str(tiles[0][3]), 1) if tiles else 1
        grey = np.asarray(mask).astype(np.uint8) // step
    classes = mask_classes(grey, pair.mask, values, ignore)
    image = read_picture(pair.image)
    if image.size != classes.shape[::-1]:
        raise DataError(
            f"{pair.mask} has {classes.shape[1]} x {classes.shape[0]} pixels, and its image {pair.image.name} "
            f"{image.width} x {image.height} as a viewer shows it; give both the same size"
        )
    colours, small = resize_image(image, sizes), resize_mask(classes, sizes)
    return np.concatenate([colours, small[None]]), np.bincount(classes.ravel(), minlength=256)


def resize_image(image: Image.Image, sizes: Sizes) -> np.ndarray:
    """An RGB image as (3, H, W) uint8 of these sizes."""
    return np.array(image.resize(sizes[::-1], Image.Resampling.BILINEAR)).transpose(2, 0, 1)


def resize_mask(mask: np.ndarray, sizes: Sizes) -> np.ndarray:
    """A mask (h, w) uint8 in these sizes; each pixel has the class of the nearest one."""
    return np.asarray(Image.fromarray(mask).resize(sizes[::-1], Image.Resampling.NEAREST))


def list_pairs(folder: Path) -> list[Pair]:
    """The images of a folder with their masks. Raises DataError."""
    images, masks = folder / "images", folder / "masks"
    found = list_files(images, ENDINGS)
    if not found:
        raise DataError(f"{images} holds no images; put images there, and their masks into {masks}")
    pairs = [Pair(image, masks / f"{image.stem}.png") for image in found]
    if missing := [pair for pair in pairs if not pair.mask.is_file()]:
        raise DataError(f"{missing[0].image} has no mask; add {missing[0].mask} or delete the image")
    named: dict[Path, Path] = {}
    for image, mask in pairs:
        if mask in named:
            raise DataError(f"{named[mask]} and {image} have the same mask {mask}; rename one of them")
        named[mask] = image
    if alone := [mask for mask in list_files(masks, ENDINGS) if mask not in named]:
        raise DataError(f"{alone[0]} has no image; add one of this name to {images} or delete the mask")
    return pairs
