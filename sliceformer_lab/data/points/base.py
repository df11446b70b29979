"""Point clouds: read and subsampled once, then scaled, augmented and ordered batch by batch."""

import json
import logging
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from torch import Tensor

from sliceformer_lab.batch import Batch
from sliceformer_lab.config.option_types import Count
from sliceformer_lab.data.base import CachedData
from sliceformer_lab.data.cache import cached
from sliceformer_lab.data.loader import Split
from sliceformer_lab.data.parallel import Pace, in_order
from sliceformer_lab.data.points.clouds import Order, curve_order, read_cloud, subsample
from sliceformer_lab.data.spec import DataSpec
from sliceformer_lab.data.splits import STAGES, Stage, split_by_class
from sliceformer_lab.errors import DataError

log = logging.getLogger(__name__)

Scale = Literal["unit_sphere", "standardise", "none"]
Augment = Literal["none", "scale_shift", "rotate", "rotate_jitter"]
FACTS = "clouds.json"  # in the cache folder: classes, and the number of clouds with too few points
Clouds = Sequence[Path] | Sequence[np.ndarray]


@dataclass(frozen=True)
class CloudOptions:
    """How the points of a cloud are scaled, augmented and ordered."""

    scale: Scale
    augment: Augment
    order: Order

    def features(self, points: Tensor, *, training: bool) -> tuple[Tensor, Tensor]:
        """Scaled and ordered clouds (B, N, 3 or 6), augmented in training, and the position of each point before."""
        xyz, normals = points[..., :3], points[..., 3:]
        xyz = _scaled(xyz, self.scale)
        if training and self.augment != "none":
            xyz, normals = _augmented(xyz, normals, self.augment)
        order = curve_order(xyz, self.order)
        features = torch.cat([xyz, normals], dim=2)
        return features.take_along_dim(order[..., None], dim=1), order


@dataclass
class PointSplit(Split):
    """Clouds with equal numbers of points. Inputs (B, N, 3 or 6) float, targets (B,) or one per point (B, N)."""

    points: np.ndarray  # (n, N, 3 or 6) float32
    targets: np.ndarray  # (n,) or (n, N) int64
    rows: np.ndarray  # (m,) positions in `points` and `targets`
    options: CloudOptions
    training: bool = False
    context: np.ndarray | None = None  # (n, F) float32

    def __len__(self) -> int:
        return len(self.rows)

    def subset(self, rows: np.ndarray) -> Self:
        return replace(self, rows=self.rows[rows])

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
class PointData(CachedData):
    """Labelled clouds, subsampled to `num_points` by farthest-point sampling.

    Clouds with fewer points are counted, and repeat random points, which depend on the cloud's place in the set.
    """

    cache: ClassVar[str] = "."  # folder of the cache in the root

    num_points: Count = 1024
    normals: bool = False
    scale: Scale = "unit_sphere"
    augment: Augment = "none"
    order: Order = "none"
    processes: Count | None = None
    batch_size: Count = 32
    eval_batch_size: Count = 64

    @abstractmethod
    def source(self) -> dict[str, Any]:
        """Everything that decides the clouds, files as stamps. Raises DataError if a file is missing."""

    @abstractmethod
    def parts(self) -> dict[Stage, tuple[Clouds, np.ndarray]]:
        """Clouds, as files or arrays, and classes (n,) of each split that the set comes with. Raises DataError."""

    @abstractmethod
    def classes(self) -> list[str]:
        """Names of the classes, in the order of their numbers. Raises DataError."""

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

    def prepare(self) -> Path:
        key = {"title": self.title, "num_points": self.num_points, **self.source()}
        return cached(self.path / self.cache, self.title, key, self._build)

    def _build(self, folder: Path) -> None:
        few = 0
        for stage, (clouds, targets) in self.parts().items():
            pace = Pace(f"{stage} clouds", len(clouds))
            made = in_order(partial(prepare_cloud, num_points=self.num_points), enumerate(clouds), self.processes)
            kept: list[np.ndarray] = []
            for points, repeated in made:
                if kept and points.shape != kept[0].shape:
                    raise DataError(
                        f"only one of {clouds[len(kept)]} and {clouds[0]} has normals; give normals to all or to none"
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
        stages = [stage for stage in STAGES if (folder / f"{stage}_points.npy").is_file()]
        points = {s: self._features(np.load(folder / f"{s}_points.npy", mmap_mode="r")) for s in stages}
        targets = {s: np.load(folder / f"{s}_targets.npy") for s in stages}
        shares = self.held_out_shares(stages)
        rows = split_by_class(torch.from_numpy(targets["train"]), shares, self.split_seed, self.title)
        splits: dict[Stage, Split] = {
            s: PointSplit(points[s], targets[s], np.arange(len(targets[s])), self.options) for s in stages
        }
        for stage, positions in rows.items():
            training = stage == "train"
            splits[stage] = PointSplit(points["train"], targets["train"], positions.numpy(), self.options, training)
        return splits

    def _features(self, points: np.ndarray) -> np.ndarray:
        """The columns of the stored points that the model uses. Raises DataError if normals are missing."""
        if self.normals and points.shape[2] < 6:
            raise DataError(f"{self.title}: the clouds have no normals; set data.normals=false")
        return points[..., : 6 if self.normals else 3]

    def fingerprint(self) -> dict[str, Any]:
        found = super().fingerprint()
        few = json.loads((self.folder() / FACTS).read_text(encoding="utf-8"))["with_too_few_points"]
        if few:
            found["note"] += f"; {few:,} clouds repeat points"
        return found


def prepare_cloud(item: tuple[int, Path | np.ndarray], num_points: int) -> tuple[np.ndarray, bool]:
    """`subsample` of (place in the set, file or points). Raises DataError if the file cannot be read."""
    place, cloud = item
    return subsample(read_cloud(cloud) if isinstance(cloud, Path) else cloud, num_points, seed=place)


def _scaled(xyz: Tensor, scale: Scale) -> Tensor:
    """Centred clouds (B, N, 3), scaled to the unit sphere or to standard deviation 1."""
    if scale == "none":
        return xyz
    xyz = xyz - xyz.mean(dim=1, keepdim=True)
    size: Tensor = xyz.norm(dim=2).amax(dim=1) if scale == "unit_sphere" else xyz.std(dim=(1, 2), correction=0)
    return xyz / size.clamp_min(1e-12)[:, None, None]


def _augmented(xyz: Tensor, normals: Tensor, augment: Augment) -> tuple[Tensor, Tensor]:
    """Clouds and normals; each cloud is scaled and shifted, or rotated about the upright axis y and jittered."""
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
