"""Your own point clouds in class folders."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sliceformer_lab.config.option_types import Count, Natural
from sliceformer_lab.data.own_data import ClassFolders, OwnFolder
from sliceformer_lab.data.points.base import Augment, CloudOptions, Clouds, PointData
from sliceformer_lab.data.points.clouds import ENDINGS, Order
from sliceformer_lab.data.spec import DataSpec
from sliceformer_lab.data.splits import Stage
from sliceformer_lab.runs.files import digest_of


@dataclass(kw_only=True, eq=False, repr=False)
class PointFolder(PointData, OwnFolder, ClassFolders):
    """Your own clouds: root/train/CLASS, also root/val/CLASS and root/test/CLASS if you have them, or only root/CLASS.

    Files are .txt, .pts, .xyz, .csv, .npy, .off or .ply; points are sampled from the surface of meshes. For a missing
    test or validation folder, `test_fraction` and then `val_fraction` of every class are held out.
    """

    title = "point_folder"
    note = "your own clouds; sha256 is of their points and classes"
    endings = ENDINGS
    examples_are = "clouds"

    batch_size: Count | None = None
    num_points: Count | None = None
    frequencies: Natural = 4
    augment: Augment = "scale_shift"
    order: Order = "hilbert"

    @property
    def spec(self) -> DataSpec:
        """Lists the class folders. Raises DataError if there are none."""
        return replace(self._spec(num_classes=len(self.class_names())), name=self.own_name)

    @property
    def options(self) -> CloudOptions:
        return CloudOptions(self.scale, self.augment, self.order, self.frequencies)

    def class_names(self) -> tuple[str, ...]:
        return tuple(self.folder_classes())

    def source(self) -> dict[str, Any]:
        return {"files": {str(path.relative_to(self.path)): path for path in self.files}}

    def parts(self) -> dict[Stage, tuple[Clouds, np.ndarray]]:
        return {
            stage: ([path for path, _ in files], np.array([label for _, label in files]))
            for stage, files in self.class_files.items()
        }

    def contents(self, stage: Stage) -> Iterator[bytes]:
        """Digests of the files, which are the same for any `num_points`."""
        split = self.splits[stage]
        return (digest_of(self.path / split.place(row)).encode() for row in range(len(split)))
