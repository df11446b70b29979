"""Opens and reads files of pictures. All pictures of data sets and new inputs come through here."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from PIL import ExifTags, Image, ImageOps, UnidentifiedImageError

from sliceformer_lab.errors import DataError, LabError, machine_error

ENDINGS = {".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"}
# Pillow clips these to 0..255 on the way to 8 bits, and makes black of NaN. (It scales 16-bit colours by itself.)
WIDE_MODES = {"I;16": "16 bits", "I;16B": "16 bits", "I;16L": "16 bits", "I": "32 bits", "F": "floating-point numbers"}


@contextmanager
def open_picture(path: Path) -> Iterator[Image.Image]:
    """The picture in a file, of 8 bits per value. A TIFF is decoded now, others when they are first used inside.

    Raises DataError if it cannot be decoded, has too many pixels, or has values that do not fit into 8 bits.
    """
    try:
        with Image.open(path) as image:
            if image.mode in WIDE_MODES:
                raise DataError(
                    f"{path} has grey values of {WIDE_MODES[image.mode]}; in 8 bits few of these levels would remain; "
                    "scale them to 0..255 and save the picture with 8 bits"
                )
            if image.format == "TIFF":
                image.load()  # which turns it as its orientation says; no size is right before
            yield image
    except LabError:
        raise
    except Exception as error:  # PIL has no error class of its own
        reason = "of no known format" if isinstance(error, UnidentifiedImageError) else error  # whose text is the path
        raise machine_error(error) or DataError(
            f"{path} cannot be read as an image ({reason}); replace or delete it"
        ) from error


def read_picture(path: Path, shorter_side: int | None = None) -> Image.Image:
    """The picture in a file in RGB, turned as its EXIF orientation says, and reduced to `shorter_side` if it is larger.

    Raises DataError.
    """
    with open_picture(path) as image:
        return ImageOps.exif_transpose(reduced(image, shorter_side))


def picture_size(path: Path) -> tuple[int, int]:
    """Width and height of the picture that `read_picture` reads, from the head of its file. Raises DataError."""
    with open_picture(path) as image:
        is_on_its_side = image.getexif().get(ExifTags.Base.Orientation, 1) >= 5
        return (image.height, image.width) if is_on_its_side else image.size


def reduced(image: Image.Image, shorter_side: int | None) -> Image.Image:
    """A picture in RGB; a shorter side of more than `shorter_side` pixels is reduced to them."""
    if image.mode not in ("RGB", "L"):  # Pillow would take the nearest pixels of a palette
        image = image.convert("RGB")
    if shorter_side is not None and (side := min(image.size)) > shorter_side:
        image.thumbnail((-(-image.width * shorter_side // side), -(-image.height * shorter_side // side)))  # rounded up
    return image.convert("RGB")
