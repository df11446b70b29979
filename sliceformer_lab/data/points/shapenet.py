"""ShapeNetPart: shapes with a part label for every point."""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from sliceformer_lab.config.option_types import Count
from sliceformer_lab.data.cache import by_name
from sliceformer_lab.data.download import OfficialFile
from sliceformer_lab.data.loader import Split
from sliceformer_lab.data.points.base import Clouds, PublishedPoints
from sliceformer_lab.data.points.clouds import read_rows
from sliceformer_lab.data.spec import DataSpec
from sliceformer_lab.data.splits import STAGES, Stage
from sliceformer_lab.errors import DataError

# Parts of each category, numbered as in the files; no part belongs to two categories.
PARTS: dict[str, range] = {
    "Airplane": range(0, 4),
    "Bag": range(4, 6),
    "Cap": range(6, 8),
    "Car": range(8, 12),
    "Chair": range(12, 16),
    "Earphone": range(16, 19),
    "Guitar": range(19, 22),
    "Knife": range(22, 24),
    "Lamp": range(24, 28),
    "Laptop": range(28, 30),
    "Motorbike": range(30, 36),
    "Mug": range(36, 38),
    "Pistol": range(38, 41),
    "Rocket": range(41, 44),
    "Skateboard": range(44, 47),
    "Table": range(47, 50),
}
NUM_PARTS = 50
COLUMNS = 7  # x y z, normal, part
_LISTS = {stage: f"train_test_split/shuffled_{stage}_file_list.json" for stage in STAGES}
CATEGORIES = "synsetoffset2category.txt"


@dataclass(kw_only=True, eq=False, repr=False)
class ShapeNetPart(PublishedPoints):
    """16,881 shapes of 16 categories with 50 parts. Targets are parts (B, N), the context one-hot categories (B, 16).

    `num_points` random points of each shape are kept; they depend on its place in the set. Shapes with fewer points are
    counted, and keep all their points and repeat some.
    """

    title = "shapenet_part"
    takes_new = False
    archive = OfficialFile(
        "https://shapenet.cs.stanford.edu/media/shapenetcore_partanno_segmentation_benchmark_v0_normal.zip",
        "",
        674_000_000,
    )
    published_sizes: ClassVar[dict[str, int]] = {"train": 12_137, "val": 1_870, "test": 2_874}

    num_points: Count = 2500
    normals: bool = True
    batch_size: Count = 32

    @property
    def spec(self) -> DataSpec:
        parts = tuple((parts.start, parts.stop) for parts in PARTS.values())
        return replace(self._spec(NUM_PARTS), targets="parts", parts=parts)

    def class_names(self) -> tuple[str, ...]:
        return tuple(f"{name} part {part - parts.start}" for name, parts in PARTS.items() for part in parts)

    @cached_property
    def _categories(self) -> dict[str, int]:
        """The number of each category by the name of its folder."""
        file = self.shapes / CATEGORIES
        rows = [line.split() for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
        if wrong := [row for row in rows if len(row) != 2 or row[0] not in PARTS]:
            raise DataError(f"{file} has the row {' '.join(wrong[0])!r}; expected the 16 categories with their folders")
        return {folder: list(PARTS).index(name) for name, folder in rows}

    def source(self) -> dict[str, Any]:
        lists = [self.shapes / name for name in (*_LISTS.values(), CATEGORIES)]
        if missing := [file for file in lists if not file.is_file()]:
            raise DataError(f"{missing[0]} is missing; unpack the archive again")
        # the layout is that of the arrays in the cache folder
        return {"files": by_name(lists), "clouds": self.stamps, "layout": 2}

    def parts(self) -> dict[Stage, tuple[Clouds, np.ndarray]]:
        found: dict[Stage, tuple[Clouds, np.ndarray]] = {}
        for stage in STAGES:
            names = json.loads((self.shapes / _LISTS[stage]).read_text(encoding="utf-8"))
            files = [self.shapes / f"{str(name).removeprefix('shape_data/')}.txt" for name in names]
            found[stage] = files, np.array([self._category(file, stage) for file in files])
        return found

    def _category(self, file: Path, stage: Stage) -> int:
        if file.parent.name not in self._categories or not file.is_file():
            raise DataError(f"{file} is missing, but listed in {_LISTS[stage]}; unpack the archive again")
        return self._categories[file.parent.name]

    @property
    def reader(self) -> Callable[[Any], tuple[np.ndarray, bool]]:
        return partial(read_shape, num_points=self.num_points)

    def arrays(self, clouds: Clouds, points: np.ndarray, targets: np.ndarray) -> dict[str, np.ndarray]:
        parts = points[..., 6].astype(np.int64)
        for file, found, category in zip(clouds, parts, targets, strict=True):
            known = list(PARTS.values())[category]
            if not set(np.unique(found)) <= set(known):
                raise DataError(f"{file} has parts outside {known.start}..{known.stop - 1}, the parts of its category")
        return {"points": points[..., :6], "targets": parts, "context": np.eye(len(PARTS), dtype=np.float32)[targets]}

    def make_splits(self) -> dict[Stage, Split]:
        splits = {stage: self.split(stage) for stage in STAGES}
        rows = np.random.default_rng(self.split_seed).permutation(len(splits["train"]))
        return {**splits, "train": replace(splits["train"], rows=rows, training=True)}


def read_shape(item: tuple[int, Path], num_points: int) -> tuple[np.ndarray, bool]:
    """Some rows (num_points, 7) of (place in the set, file), and whether some repeat: x y z, normal and part.

    Raises DataError naming the file.
    """
    place, file = item
    try:
        rows = read_rows(file)
    except (OSError, ValueError) as error:
        raise DataError(f"{file} cannot be read ({error}); unpack the archive again") from error
    if rows.shape[1] != COLUMNS:
        raise DataError(f"{file} has {rows.shape[1]} columns, expected {COLUMNS}: x y z, normal, part")
    if not np.isfinite(rows).all():
        raise DataError(f"{file} contains NaN or infinity; unpack the archive again")
    return rows[_choose_points(len(rows), num_points, seed=place)], len(rows) < num_points


def _choose_points(count: int, wanted: int, seed: int) -> np.ndarray:
    """Positions (wanted,) of random points: without repetition if there are enough, else all and some repeated."""
    random = np.random.default_rng(seed)
    if count >= wanted:
        return np.sort(random.choice(count, wanted, replace=False))
    return np.concatenate([np.arange(count), random.integers(count, size=wanted - count)])
