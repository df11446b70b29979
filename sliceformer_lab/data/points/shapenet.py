"""ShapeNetPart: shapes with a part label for every point."""

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import numpy as np

from sliceformer_lab.config.option_types import Count, Processes
from sliceformer_lab.data.base import CachedData
from sliceformer_lab.data.cache import IDENTITY, by_name, cached_folder
from sliceformer_lab.data.download import OfficialFile, fetch_unpacked
from sliceformer_lab.data.loader import Split
from sliceformer_lab.data.parallel import Pace, in_order
from sliceformer_lab.data.points.base import FACTS, Augment, CloudOptions, PointSplit, Scale
from sliceformer_lab.data.points.clouds import Order, read_rows
from sliceformer_lab.data.spec import DataSpec
from sliceformer_lab.data.splits import STAGES, Stage
from sliceformer_lab.data.strings import Strings
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


@dataclass(kw_only=True, eq=False, repr=False)
class ShapeNetPart(CachedData):
    """16,881 shapes of 16 categories with 50 parts. Targets are parts (B, N), the context one-hot categories (B, 16).

    `num_points` random points of each shape are kept; they depend on its place in the set. Shapes with fewer points are
    counted, and keep all their points and repeat some.
    """

    title = "shapenet_part"
    content_kind = "cloud"
    published: ClassVar[OfficialFile] = OfficialFile(
        "https://shapenet.cs.stanford.edu/media/shapenetcore_partanno_segmentation_benchmark_v0_normal.zip",
        "",
        674_000_000,
    )
    published_sizes: ClassVar[dict[str, int]] = {"train": 12_137, "val": 1_870, "test": 2_874}

    num_points: Count = 2500
    normals: bool = True
    scale: Scale = "unit_sphere"
    augment: Augment = "none"
    order: Order = "none"
    processes: Processes | None = None
    batch_size: Count = 32
    eval_batch_size: Count = 64
    download: bool = True

    @property
    def spec(self) -> DataSpec:
        return DataSpec(
            name=self.title,
            targets="parts",
            num_classes=NUM_PARTS,
            channels=6 if self.normals else 3,
            max_len=self.num_points,
            unordered=self.order == "none",
            parts=tuple((parts.start, parts.stop) for parts in PARTS.values()),
        )

    def class_names(self) -> tuple[str, ...]:
        """Names of the parts."""
        return tuple(f"{name} part {part - parts.start}" for name, parts in PARTS.items() for part in parts)

    @cached_property
    def _shapes(self) -> Path:
        name = "shapenetcore_partanno_segmentation_benchmark_v0_normal"
        return fetch_unpacked(self.published, self.path, name, download=self.download, check=False)

    @cached_property
    def _categories(self) -> dict[str, int]:
        """The number of each category by the name of its folder."""
        file = self._shapes / "synsetoffset2category.txt"
        rows = [line.split() for line in _read(file).splitlines() if line.strip()]
        if wrong := [row for row in rows if len(row) != 2 or row[0] not in PARTS]:
            raise DataError(f"{file} has the row {' '.join(wrong[0])!r}; expected the 16 categories with their folders")
        return {folder: list(PARTS).index(name) for name, folder in rows}

    def prepare(self) -> Path:
        lists = [self._shapes / name for name in (*_LISTS.values(), "synsetoffset2category.txt")]
        if missing := [file for file in lists if not file.is_file()]:
            raise DataError(f"{missing[0]} is missing; unpack the archive again")
        key = {"title": self.title, "identity": 1, "num_points": self.num_points, "files": by_name(lists)}
        return cached_folder(self.path, self.title, key, self._build)

    def _build(self, folder: Path) -> None:
        few = 0
        for stage in STAGES:
            names = [str(name).removeprefix("shape_data/") for name in json.loads(_read(self._shapes / _LISTS[stage]))]
            files = [self._shapes / f"{name}.txt" for name in names]
            categories = np.array([self._category(file, stage) for file in files])
            pace = Pace(f"{stage} shapes", len(files))
            points = np.empty((len(files), self.num_points, 6), dtype=np.float32)
            parts = np.empty((len(files), self.num_points), dtype=np.int64)
            for i, rows in enumerate(in_order(read_shape, files, self.processes)):
                chosen = _choose_points(len(rows), self.num_points, seed=i)
                few += len(rows) < self.num_points
                points[i], parts[i] = rows[chosen, :6], rows[chosen, 6]
                pace.update(i + 1)
                known = list(PARTS.values())[categories[i]]
                if not set(np.unique(parts[i])) <= set(known):
                    raise DataError(
                        f"{files[i]} has parts outside {known.start}..{known.stop - 1}, the parts of its category"
                    )
            np.save(folder / f"{stage}_points.npy", points)
            np.save(folder / f"{stage}_targets.npy", parts)
            Strings.write(folder, f"{IDENTITY}{stage}", (f"{name}.txt" for name in names))
            np.save(folder / f"{stage}_context.npy", np.eye(len(PARTS), dtype=np.float32)[categories])
        (folder / FACTS).write_text(json.dumps({"with_too_few_points": few}), encoding="utf-8")

    def _category(self, file: Path, stage: Stage) -> int:
        if file.parent.name not in self._categories or not file.is_file():
            raise DataError(f"{file} is missing, but listed in {_LISTS[stage]}; unpack the archive again")
        return self._categories[file.parent.name]

    def make_splits(self) -> dict[Stage, Split]:
        return {stage: self._split(stage) for stage in STAGES}

    def _split(self, stage: Stage) -> PointSplit:
        points, targets, context = (
            np.load(self.folder() / f"{stage}_{part}.npy", mmap_mode="r") for part in ("points", "targets", "context")
        )
        rows = (
            np.random.default_rng(self.split_seed).permutation(len(points))
            if stage == "train"
            else np.arange(len(points))
        )
        options = CloudOptions(self.scale, self.augment, self.order)
        return PointSplit(
            points[..., : 6 if self.normals else 3],
            targets,
            options,
            rows=rows,
            training=stage == "train",
            context=context,
            places=Strings.open(self.folder(), f"{IDENTITY}{stage}"),
        )

    def is_official(self) -> tuple[bool, str]:
        few = json.loads((self.folder() / FACTS).read_text(encoding="utf-8"))["with_too_few_points"]
        sizes = {stage: len(np.load(self.folder() / f"{stage}_targets.npy", mmap_mode="r")) for stage in STAGES}
        note = f"shapes counted, no checksums are published; {few:,} have fewer than {self.num_points} points"
        return sizes == self.published_sizes, note


def read_shape(file: Path) -> np.ndarray:
    """The rows (n, 7) of a file: x y z, normal and part. Raises DataError naming the file."""
    try:
        rows = read_rows(file)
    except (OSError, ValueError) as error:
        raise DataError(f"{file} cannot be read ({error}); unpack the archive again") from error
    if rows.shape[1] != COLUMNS:
        raise DataError(f"{file} has {rows.shape[1]} columns, expected {COLUMNS}: x y z, normal, part")
    if not np.isfinite(rows).all():
        raise DataError(f"{file} contains NaN or infinity; unpack the archive again")
    return rows


def _choose_points(count: int, wanted: int, seed: int) -> np.ndarray:
    """Positions (wanted,) of random points: without repetition if there are enough, else all and some repeated."""
    random = np.random.default_rng(seed)
    if count >= wanted:
        return np.sort(random.choice(count, wanted, replace=False))
    return np.concatenate([np.arange(count), random.integers(count, size=wanted - count)])


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise DataError(f"{file} is missing; unpack the archive again") from error
