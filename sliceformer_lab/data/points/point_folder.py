"""Your own point clouds in class folders."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from sliceformer_lab.config.option_types import Count, Natural
from sliceformer_lab.data.images.folders import class_names
from sliceformer_lab.data.own_data import OwnData
from sliceformer_lab.data.points.base import Augment, CloudOptions, Clouds, PointData
from sliceformer_lab.data.points.clouds import ENDINGS, Order
from sliceformer_lab.data.spec import DataSpec
from sliceformer_lab.data.splits import STAGES, Stage
from sliceformer_lab.errors import DataError
from sliceformer_lab.runs.files import digest_of


@dataclass(kw_only=True, eq=False, repr=False)
class PointFolder(PointData, OwnData):
    """Your own clouds: root/train/CLASS, also root/val/CLASS and root/test/CLASS if you have them, or only root/CLASS.

    Files are .txt, .pts, .xyz, .csv, .npy, .off or .ply; points are sampled from the surface of meshes. For a missing
    test or validation folder, `test_fraction` and then `val_fraction` of every class are held out.
    """

    title = "point_folder"
    note = "your own clouds; sha256 is of their points and classes"

    cache: str
    batch_size: Count | None = None
    num_points: Count | None = None
    frequencies: Natural = 4
    augment: Augment = "scale_shift"
    order: Order = "hilbert"

    @property
    def spec(self) -> DataSpec:
        """Lists the class folders. Raises DataError if there are none."""
        return replace(self._spec(num_classes=len(self.classes())), name=self.own_name)

    @property
    def origin(self) -> Path:
        return self.path

    @property
    def options(self) -> CloudOptions:
        return CloudOptions(self.scale, self.augment, self.order, self.frequencies)

    def cache_folder(self) -> Path:
        return Path(self.cache).expanduser()

    def classes(self) -> list[str]:
        return class_names(self.path / "train" if (self.path / "train").is_dir() else self.path)

    @cached_property
    def _files(self) -> dict[Stage, list[tuple[Path, int]]]:
        if not (self.path / "train").is_dir():
            return {"train": self._list(self.path)}
        return {stage: self._list(self.path / stage) for stage in STAGES if (self.path / stage).is_dir()}

    def _list(self, folder: Path) -> list[tuple[Path, int]]:
        classes = self.classes()
        found = []
        for name in class_names(folder):
            if name not in classes:
                raise DataError(f"{folder / name} is a class without training clouds; add some or delete the folder")
            files = [path for path in sorted((folder / name).iterdir()) if path.suffix.lower() in ENDINGS]
            if not files:
                raise DataError(f"{folder / name} holds no clouds ({', '.join(sorted(ENDINGS))}); fill it or delete it")
            found += [(path, classes.index(name)) for path in files]
        return found

    def source(self) -> dict[str, Any]:
        return {
            "files": {str(path.relative_to(self.path)): path for files in self._files.values() for path, _ in files}
        }

    def parts(self) -> dict[Stage, tuple[Clouds, np.ndarray]]:
        return {
            stage: ([path for path, _ in files], np.array([label for _, label in files]))
            for stage, files in self._files.items()
        }

    def contents(self, stage: Stage) -> Iterator[bytes]:
        """Digests of the files: which points of a cloud are kept depends on its place."""
        split = self.splits[stage]
        return (digest_of(self.path / split.place(row)).encode() for row in range(len(split)))
