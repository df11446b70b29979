"""ModelNet40 in its two published forms: text files of points with normals, and HDF5."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from sliceformer_lab.data.cache import by_name
from sliceformer_lab.data.download import OfficialFile
from sliceformer_lab.data.points.base import Clouds, PublishedPoints
from sliceformer_lab.data.spec import DataSpec
from sliceformer_lab.data.splits import Stage
from sliceformer_lab.errors import DataError

NUM_CLASSES = 40


@dataclass(kw_only=True, eq=False, repr=False)
class ModelNet40(PublishedPoints):
    """Shapes of 40 classes: 9,843 clouds to train on and 2,468 to test on.

    `form=text` reads root/modelnet40_normal_resampled, clouds of 10,000 points with normals; `form=hdf5` reads
    root/modelnet40_ply_hdf5_2048, clouds of 2,048 points. Lists that name fewer clouds are accepted.
    """

    title = "modelnet40"
    text: ClassVar[OfficialFile] = OfficialFile(
        "https://shapenet.cs.stanford.edu/media/modelnet40_normal_resampled.zip", "", 1_710_000_000
    )
    hdf5: ClassVar[OfficialFile] = OfficialFile(
        "https://shapenet.cs.stanford.edu/media/modelnet40_ply_hdf5_2048.zip",
        "c9ab8e6dfb16f67afdab25e155c79e59",
        435_000_000,
    )
    published_sizes: ClassVar[dict[str, int]] = {"train": 9_843, "test": 2_468}

    form: Literal["text", "hdf5"] = "text"

    @property
    def spec(self) -> DataSpec:
        return self._spec(NUM_CLASSES)

    @property
    def archive(self) -> OfficialFile:
        return self.text if self.form == "text" else self.hdf5

    def class_names(self) -> tuple[str, ...]:
        return tuple(self._lines("modelnet40_shape_names.txt" if self.form == "text" else "shape_names.txt"))

    def source(self) -> dict[str, Any]:
        lists = sorted(self.shapes.glob("*.txt"))
        key = {"form": self.form, "files": by_name([*lists, *sorted(self.shapes.glob("*.h5"))])}
        return key if self.form == "hdf5" else key | {"clouds": self.stamps}

    def parts(self) -> dict[Stage, tuple[Clouds, np.ndarray]]:
        stages: tuple[Stage, ...] = ("train", "test")
        return {stage: self._text_part(stage) if self.form == "text" else self._hdf5_part(stage) for stage in stages}

    def _text_part(self, stage: Stage) -> tuple[Clouds, np.ndarray]:
        classes = self.class_names()
        files, labels = [], []
        for name in self._lines(f"modelnet40_{stage}.txt"):
            kind = name.rpartition("_")[0]  # night_stand_0001
            if kind not in classes:
                raise DataError(f"{self.shapes / f'modelnet40_{stage}.txt'} names {name}, which belongs to no class")
            files.append(self.shapes / kind / f"{name}.txt")
            labels.append(classes.index(kind))
        if missing := [file for file in files if not file.is_file()]:
            raise DataError(
                f"{missing[0]} is missing, as are {len(missing):,} of the {len(files):,} clouds in "
                f"modelnet40_{stage}.txt; unpack the archive again"
            )
        return files, np.array(labels)

    def _hdf5_part(self, stage: Stage) -> tuple[Clouds, np.ndarray]:
        try:
            import h5py
        except ImportError as error:
            raise DataError("the HDF5 release needs h5py: pip install 'sliceformer-lab[points]'") from error
        clouds, labels = [], []
        for line in self._lines(f"{stage}_files.txt"):
            file = self.shapes / Path(line).name
            try:
                with h5py.File(file, "r") as content:
                    points, normals = content["data"][:], content["normal"][:] if "normal" in content else None
                    labels.append(content["label"][:].reshape(-1).astype(np.int64))
            except (OSError, KeyError) as error:
                raise DataError(f"{file} cannot be read ({error}); unpack the archive again") from error
            clouds.append(points if normals is None else np.concatenate([points, normals], axis=2))
        every = np.concatenate(clouds).astype(np.float32)
        if not np.isfinite(every).all():
            raise DataError(f"{self.shapes} contains NaN or infinity; unpack the archive again")
        return list(every), np.concatenate(labels)

    def _lines(self, name: str) -> list[str]:
        file = self.shapes / name
        if not file.is_file():
            raise DataError(f"{file} is missing; unpack the archive again")
        return file.read_text(encoding="utf-8").split()
