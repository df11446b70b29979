"""Your own images in a table: a column of files, and classes, labels or numbers."""

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sliceformer_lab.data.images.augment import ImageAugment
from sliceformer_lab.data.images.folders import FileImages, OwnImages
from sliceformer_lab.data.own_data import Column, OwnTable
from sliceformer_lab.data.own_targets import TableTargets
from sliceformer_lab.data.spec import Choice, DataSpec
from sliceformer_lab.data.splits import STAGES, Stage
from sliceformer_lab.data.table_files import check_classes, check_table, field_of, split_of, table_rows
from sliceformer_lab.errors import DataError


@dataclass(kw_only=True, eq=False, repr=False)
class ImageTable(OwnImages, TableTargets, OwnTable):
    """Your own images, named by the column `image_column` of a table, with a class, labels or numbers each.

    The names start at `root`, a folder seen from that of the table. A column or fractions define the splits. With
    `augment` null, images with numbers are not augmented: most numbers change when an image is cropped or mirrored.
    Images are read and prepared as those of `OwnImages`.
    """

    title = "image_csv"
    note = "your own images; sha256 is of files and targets"

    image_column: Column = "image"
    augment: ImageAugment | None = None

    @property
    def path(self) -> Path:
        return self.origin.parent / Path(self.root).expanduser()

    @property
    def origin(self) -> Path:
        return Path(self.file).expanduser()

    @property
    def spec(self) -> DataSpec:
        """Reads the table, and looks at some images if `image_size` is null. Raises DataError."""
        if self.has_classes:
            return super().spec
        return replace(super().spec, targets=self.targets_are, num_targets=len(self.target_names()))

    def choices(self) -> list[Choice]:
        chosen = super().choices()
        if self.chosen_augment == "none":
            chosen = [choice for choice in chosen if choice.option != "data.mirror"]
        if self.augment is None and self.chosen_augment == "none":
            chosen.append(Choice("data.augment", "none", "numbers may change when an image is cropped or mirrored"))
        return chosen

    @property
    def chosen_augment(self) -> ImageAugment:
        without = not self.has_classes and self.targets_are == "numbers"
        return self.augment or ("none" if without else "crop")

    @cached_property
    def _rows(self) -> list[tuple[str, str, Any, Stage]]:
        """Place, file, target and split of each row of the table. Raises DataError."""
        check_table(self.origin, "files of images and targets")
        rows = []
        for place, row in table_rows(self.origin):
            name = field_of(place, row, str(self.image_column), "image_column")
            if not isinstance(name, str) or not (self.path / name).is_file():
                raise DataError(
                    f"{place}: {self.image_column} is {name!r}, but {self.path} has no such file; correct the name, or "
                    "set data.root to the folder where the names start"
                )
            stage: Stage = split_of(place, row, str(self.split_column)) if self.split_column else "train"
            rows.append((place, name, self.target_of(place, row), stage))
        if not any(stage == "train" for *_, stage in rows):
            raise DataError(f"{self.origin} has no {'training ' if self.split_column else ''}rows; add some")
        return rows

    @cached_property
    def parts(self) -> dict[Stage, FileImages]:
        targets = torch.from_numpy(self._encoded[1])
        stages = [stage for *_, stage in self._rows]
        parts: dict[Stage, FileImages] = {}
        for stage in STAGES:
            if stage in stages:
                chosen = [number for number, found in enumerate(stages) if found == stage]
                parts[stage] = FileImages(self.path, [self._rows[i][1] for i in chosen], targets[chosen])
        return parts

    @cached_property
    def _encoded(self) -> tuple[dict[str, list[str]], np.ndarray]:
        """The names of classes or labels, and the targets of all rows. Raises DataError."""
        if self.has_classes:
            training = [target for *_, target, stage in self._rows if stage == "train"]
            check_classes(self.file, self.label_column, training)
        return self.encode_targets([(stage, place, target) for place, _, target, stage in self._rows], "images")

    def class_names(self) -> tuple[str, ...]:
        return tuple(self._encoded[0].get("classes", ()))

    def found_labels(self) -> tuple[str, ...]:
        return tuple(self._encoded[0]["labels"])

    def target_values(self) -> np.ndarray:
        return self._encoded[1]
