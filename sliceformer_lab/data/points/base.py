"""Point clouds: read and thinned once, then scaled, turned and put in order batch by batch."""

import json
import logging
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from torch import Tensor

from sliceformer_lab.batch import Batch
from sliceformer_lab.data.base import DataModule, Fraction, Positive, Stage
from sliceformer_lab.data.cache import cached, content_digest
from sliceformer_lab.data.images.base import carve
from sliceformer_lab.data.images.folders import class_names
from sliceformer_lab.data.loader import Split
from sliceformer_lab.data.parallel import Pace, in_order
from sliceformer_lab.data.points.clouds import ENDINGS, Order, curve_order, read_cloud, thinned
from sliceformer_lab.data.spec import DataSpec
from sliceformer_lab.errors import DataError

log = logging.getLogger(__name__)

Scale = Literal["unit_sphere", "standardise", "none"]
Augment = Literal["none", "scale_shift", "rotate", "rotate_jitter"]
FACTS = "clouds.json"  # in the cache folder: classes, and how many clouds had too few points
Clouds = Sequence[Path] | Sequence[np.ndarray]


@dataclass(frozen=True)
class CloudOptions:
    """What is done to the points of a cloud."""

    scale: Scale
    augment: Augment
    order: Order

    def features(self, points: Tensor, *, training: bool) -> tuple[Tensor, Tensor]:
        """Clouds (B, N, 3 or 6), scaled, augmented in training, and in order; and each point's position before."""
        xyz, normals = points[..., :3], points[..., 3:]
        xyz = _scaled(xyz, self.scale)
        if training and self.augment != "none":
            xyz, normals = _augmented(xyz, normals, self.augment)
        order = curve_order(xyz, self.order)
        features = torch.cat([xyz, normals], dim=2)
        return features.take_along_dim(order[..., None], dim=1), order


@dataclass
class PointSplit(Split):
    """Some clouds of one number of points. Inputs (B, N, 3 or 6) float, targets (B,) or, point by point, (B, N)."""

    points: np.ndarray  # (n, N, 3 or 6) float32
    targets: np.ndarray  # (n,) or (n, N) int64
    rows: np.ndarray  # (m,) positions in them
    options: CloudOptions
    training: bool = False
    context: np.ndarray | None = None  # (n, F) float32

    def __len__(self) -> int:
        return len(self.rows)

    def subset(self, rows: np.ndarray) -> Self:
        return type(self)(self.points, self.targets, self.rows[rows], self.options, self.training, self.context)

    def batch(self, rows: list[int]) -> Batch:
        places = self.rows[rows]
        points = torch.from_numpy(np.array(self.points[places]))
        target = torch.from_numpy(np.array(self.targets[places], dtype=np.int64))
        inputs, order = self.options.features(points, training=self.training)
        if target.ndim == 2:
            target = target.gather(1, order)
        context = None if self.context is None else torch.from_numpy(np.array(self.context[places]))
        return Batch(inputs, target, torch.tensor(rows), context=context)


@dataclass(kw_only=True, eq=False, repr=False)
class PointData(DataModule):
    """Labelled clouds, thinned to `num_points` by farthest-point sampling and kept in a cache of mapped files.

    Clouds with fewer points repeat some of theirs, drawn by the cloud's place in the set, and are counted.
    """

    title: ClassVar[str]
    cache: ClassVar[str] = "."  # where in the root

    root: str
    num_points: Positive = 1024
    normals: bool = False
    scale: Scale = "unit_sphere"
    augment: Augment = "none"
    order: Order = "none"
    processes: Positive | None = None
    batch_size: Positive = 32
    eval_batch_size: Positive = 64

    @property
    def path(self) -> Path:
        return Path(self.root).expanduser()

    @abstractmethod
    def source(self) -> dict[str, Any]:
        """What the clouds follow from, files by their stamps. Raises DataError if they are not there."""

    @abstractmethod
    def is_official(self) -> tuple[bool, str]:
        """Whether what was read is the published set, and how that was found out."""

    @abstractmethod
    def parts(self) -> dict[Stage, tuple[Clouds, np.ndarray]]:
        """Of each part that the set comes with: its clouds, in files or memory, and classes (n,). Raises DataError."""

    @abstractmethod
    def classes(self) -> list[str]:
        """Names of the classes, in the order of their numbers. Raises DataError."""

    @property
    def test_share(self) -> float:
        """How much of every class is held out to test on, where the set has no test part of its own."""
        return 0.0

    def _spec(self, num_classes: int) -> DataSpec:
        return DataSpec(
            name=self.title,
            num_classes=num_classes,
            channels=6 if self.normals else 3,
            max_len=self.num_points,
            unordered=self.order == "none",
        )

    @property
    def options(self) -> CloudOptions:
        return CloudOptions(self.scale, self.augment, self.order)

    def prepare_data(self) -> None:
        """Read and thin the clouds, unless an earlier run has. Raises DataError."""
        self.folder()

    def folder(self) -> Path:
        """The cache folder of the clouds."""
        return self._folder

    @cached_property
    def _folder(self) -> Path:
        key = {"title": self.title, "num_points": self.num_points, **self.source()}
        return cached(self.path / self.cache, self.title, key, self._build)

    def _build(self, folder: Path) -> None:
        few = 0
        for stage, (clouds, targets) in self.parts().items():
            pace = Pace(f"{stage} clouds", len(clouds))
            made = in_order(partial(prepared, num_points=self.num_points), enumerate(clouds), self.processes)
            kept: list[np.ndarray] = []
            for points, repeated in made:
                if kept and points.shape != kept[0].shape:
                    raise DataError(
                        f"{clouds[len(kept)]} and {clouds[0]} differ in having normals; give all or none any"
                    )
                kept.append(points)
                few += repeated
                pace.update(len(kept))
            np.save(folder / f"{stage}_points.npy", np.stack(kept))
            np.save(folder / f"{stage}_targets.npy", targets)
        (folder / FACTS).write_text(json.dumps({"classes": self.classes(), "with_too_few_points": few}), "utf-8")
        if few:
            log.info(f"{self.title}: {few:,} clouds have fewer than {self.num_points} points and repeat some")

    def make_splits(self) -> dict[Stage, Split]:
        folder = self.folder()
        points, targets = {}, {}
        for stage in ("train", "val", "test"):
            if (folder / f"{stage}_points.npy").is_file():
                points[stage] = self._features(np.load(folder / f"{stage}_points.npy", mmap_mode="r"))
                targets[stage] = np.load(folder / f"{stage}_targets.npy")
        kept = carve(torch.from_numpy(targets["train"]), 0.0, self.split_seed)[0]
        splits: dict[Stage, Split] = {}
        shares: dict[Stage, float] = {"test": self.test_share, "val": self.val_fraction}
        for stage, share in shares.items():
            if stage in targets:
                rows = np.arange(len(targets[stage]))
                splits[stage] = PointSplit(points[stage], targets[stage], rows, self.options)
                continue
            staying, held = carve(torch.from_numpy(targets["train"])[kept], share, self.split_seed)
            if share and not len(held):
                raise DataError(
                    f"{self.title}: holding out {share} of every class for {stage} takes none of {len(kept)} clouds; "
                    f"add clouds or change data.{stage}_fraction"
                )
            rows = kept[held].sort().values.numpy()
            splits[stage] = PointSplit(points["train"], targets["train"], rows, self.options)
            kept = kept[staying]
        splits["train"] = PointSplit(points["train"], targets["train"], kept.numpy(), self.options, training=True)
        return splits

    def _features(self, points: np.ndarray) -> np.ndarray:
        """What the model is given of stored points. Raises DataError if normals are asked for and there are none."""
        if self.normals and points.shape[2] < 6:
            raise DataError(f"{self.title}: the clouds have no normals; say data.normals=false")
        return points[..., : 6 if self.normals else 3]

    def fingerprint(self) -> dict[str, Any]:
        sha256 = content_digest(self.folder())
        official, note = self.is_official()
        few = json.loads((self.folder() / FACTS).read_text(encoding="utf-8"))["with_too_few_points"]
        if few:
            note = f"{note}; {few:,} clouds repeat points"
        return self.identified(sha256, official, note)


@dataclass(kw_only=True, eq=False, repr=False)
class PointFolder(PointData):
    """Your own clouds: root/train/CLASS with val/ and test/ beside it if you have them, or just root/CLASS.

    Files of .txt, .pts, .xyz, .csv, .npy, .off or .ply; of meshes, points of their surface are drawn. Of every class,
    `test_fraction` and then `val_fraction` are held out from training for the parts that are not there.
    """

    title = "point_folder"
    cache = ".cache"  # its folders are classes

    test_fraction: Fraction = 0.1

    @property
    def spec(self) -> DataSpec:
        """Lists the class folders, so it raises DataError if there are none."""
        return self._spec(num_classes=len(self.classes()))

    @property
    def test_share(self) -> float:
        return self.test_fraction

    def classes(self) -> list[str]:
        return class_names(self.path / "train" if (self.path / "train").is_dir() else self.path)

    def is_official(self) -> tuple[bool, str]:
        return False, "your own clouds; sha256 is of their points and classes"

    @cached_property
    def _files(self) -> dict[Stage, list[tuple[Path, int]]]:
        if not (self.path / "train").is_dir():
            return {"train": self._listed(self.path)}
        stages: tuple[Stage, ...] = ("train", "val", "test")
        return {stage: self._listed(self.path / stage) for stage in stages if (self.path / stage).is_dir()}

    def _listed(self, folder: Path) -> list[tuple[Path, int]]:
        classes = self.classes()
        found = []
        for name in class_names(folder):
            if name not in classes:
                raise DataError(f"{folder / name} is a class that the training part lacks; add it there or delete it")
            files = [path for path in sorted((folder / name).iterdir()) if path.suffix.lower() in ENDINGS]
            if not files:
                raise DataError(f"{folder / name} holds no clouds ({', '.join(sorted(ENDINGS))}); fill it or delete it")
            found += [(path, classes.index(name)) for path in files]
        return found

    def source(self) -> dict[str, Any]:
        stamps = {
            str(path.relative_to(self.path)): [path.stat().st_size, path.stat().st_mtime_ns]
            for files in self._files.values()
            for path, _ in files
        }
        return {"files": stamps}

    def parts(self) -> dict[Stage, tuple[Clouds, np.ndarray]]:
        return {
            stage: ([path for path, _ in files], np.array([label for _, label in files]))
            for stage, files in self._files.items()
        }


def prepared(item: tuple[int, Path | np.ndarray], num_points: int) -> tuple[np.ndarray, bool]:
    """A cloud of the set, by its place in it, read if it is a file, and thinned. Raises DataError."""
    place, cloud = item
    return thinned(read_cloud(cloud) if isinstance(cloud, Path) else cloud, num_points, seed=place)


def _scaled(xyz: Tensor, scale: Scale) -> Tensor:
    """Clouds (B, N, 3) about their mean: in the unit sphere, or with deviation 1."""
    if scale == "none":
        return xyz
    xyz = xyz - xyz.mean(dim=1, keepdim=True)
    size: Tensor = xyz.norm(dim=2).amax(dim=1) if scale == "unit_sphere" else xyz.std(dim=(1, 2), correction=0)
    return xyz / size.clamp_min(1e-12)[:, None, None]


def _augmented(xyz: Tensor, normals: Tensor, augment: Augment) -> tuple[Tensor, Tensor]:
    """Clouds and their normals, each cloud scaled and shifted, or turned about the upright axis y and jittered."""
    size = len(xyz)
    if augment == "scale_shift":
        factor = torch.empty(size, 1, 3).uniform_(2 / 3, 3 / 2)
        return xyz * factor + torch.empty(size, 1, 3).uniform_(-0.2, 0.2), normals
    angle = torch.rand(size) * 2 * torch.pi
    cos, sin, zero, one = angle.cos(), angle.sin(), torch.zeros(size), torch.ones(size)
    turn = torch.stack([cos, zero, sin, zero, one, zero, -sin, zero, cos], dim=1).view(size, 3, 3)
    xyz = xyz @ turn.mT
    if normals.shape[2]:
        normals = normals @ turn.mT
    if augment == "rotate_jitter":
        xyz = xyz + (torch.randn_like(xyz) * 0.01).clamp(-0.05, 0.05)
    return xyz, normals
