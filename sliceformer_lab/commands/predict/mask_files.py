"""Predicted masks as files beside the table."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

import numpy as np
from PIL import Image

from sliceformer_lab.errors import LabError
from sliceformer_lab.measures.mask_plots import class_colours


class MaskFiles:
    """The folder of the masks of a table: PNG files of class numbers, with a palette for people.

    They are written beside it, and moved into it once all of them are there.
    """

    def __init__(self, table: Path, classes: Sequence[str]) -> None:
        self.folder = table.with_name(f"{table.stem}_masks")
        self._unfinished = table.with_name(f"{table.stem}_masks.unfinished")
        self.palette = class_colours(max(1, len(classes))).ravel().tolist()
        self._written: set[PurePosixPath] = set()

    def check(self, overwrite: bool) -> None:
        """Raises LabError if the folder exists and may not be written into."""
        stopped = self._unfinished.exists()  # a command that was stopped may have moved some masks
        if self.folder.exists() and not ((overwrite or stopped) and self.folder.is_dir()):
            raise LabError(f"{self.folder} exists; choose another output, or overwrite=true")

    def write(self, place: str, mask: np.ndarray) -> str:
        """Write the mask (H, W) of a picture; returns its path from the table's folder."""
        inner = PurePosixPath(*(part for part in PurePosixPath(place).parts if part not in ("/", "..")))
        name = inner.with_suffix(".png")
        if name in self._written:  # of a picture with the same name and another ending
            name = PurePosixPath(f"{inner}.png")
        self._written.add(name)
        file = self._unfinished / name
        file.parent.mkdir(parents=True, exist_ok=True)
        image = Image.fromarray(mask)
        image.putpalette(self.palette)
        image.save(file)
        return f"{self.folder.name}/{name}"

    @contextmanager
    def moved_at_end(self) -> Iterator[None]:
        """Moves the masks into their folder, in which other files stay; after an error there are none."""
        self.clean()
        try:
            yield
        except BaseException:
            self.clean()
            raise
        for name in sorted(self._written):
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            (self._unfinished / name).replace(self.folder / name)

    def clean(self) -> None:
        """Removes the folder beside it."""
        shutil.rmtree(self._unfinished, ignore_errors=True)
