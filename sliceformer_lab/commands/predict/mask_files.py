"""Predicted masks as files beside the table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path, PurePosixPath

import numpy as np
from PIL import Image

from sliceformer_lab.errors import LabError
from sliceformer_lab.measures.mask_plots import class_colours


class MaskFiles:
    """The folder of the masks of a table: PNG files of class numbers, with a palette for people."""

    def __init__(self, table: Path, classes: Sequence[str]) -> None:
        self.folder = table.with_name(f"{table.stem}_masks")
        self.palette = class_colours(max(1, len(classes))).ravel().tolist()
        self._written: set[Path] = set()

    def check(self, overwrite: bool) -> None:
        """Raises LabError if the folder exists and may not be written into."""
        if self.folder.exists() and not (overwrite and self.folder.is_dir()):
            raise LabError(f"{self.folder} exists; choose another output, or overwrite=true")

    def write(self, place: str, mask: np.ndarray) -> str:
        """Write the mask (H, W) of a picture; returns its path from the table's folder."""
        inner = PurePosixPath(*(part for part in PurePosixPath(place).parts if part not in ("/", "..")))
        file = self.folder / inner.with_suffix(".png")
        if file in self._written:  # of a picture with the same name and another ending
            file = self.folder / f"{inner}.png"
        self._written.add(file)
        file.parent.mkdir(parents=True, exist_ok=True)
        image = Image.fromarray(mask)
        image.putpalette(self.palette)
        image.save(file)
        return file.relative_to(self.folder.parent).as_posix()
