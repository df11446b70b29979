"""Point clouds: read and subsampled once, then scaled, augmented and ordered batch by batch."""

import json
import logging
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from sliceformer_lab.batch import Batch
from sliceformer_lab.config.option_types import Count, Processes
from sliceformer_lab.data.cache import IDENTITY, cached_folder, digest_of_stamps
from sliceformer_lab.data.cached_data import CachedData, StoredSplit
from sliceformer_lab.data.download import OfficialFile, fetch_unpacked
from sliceformer_lab.data.loader import Split
from sliceformer_lab.data.own_data import sample_evenly
from sliceformer_lab.data.parallel import in_order, paced
from sliceformer_lab.data.points.clouds import Order, as_cloud, choose_points, curve_order, read_cloud
from sliceformer_lab.data.spec import Choice, Content, DataSpec
from sliceformer_lab.data.splits import STAGES, Stage, split_by_class
from sliceformer_lab.data.strings import UNKNOWN, Places, Strings
from sliceformer_lab.errors import DataError

log = logging.getLogger(__name__)

Scale = Literal["unit_sphere", "standardise", "none"]
Augment = Literal["none", "scale_shift", "rotate", "rotate_jitter"]
MAX_POINTS = 256  # that num_points=null chooses: a run on one core then takes minutes
MAX_NORMAL_ERROR = 0.1  # of the length of a normal; colours are further away
Clouds = Sequence[Path] | Sequence[np.ndarray]


@dataclass(frozen=True)
class CloudOptions:
    """How the points of a cloud are scaled, augmented, ordered and described."""

    scale: Scale
    augment: Augment
    order: Order
    frequencies: int = 0

    @property
    def num_waves(self) -> int:
        """Features that `frequencies` adds to a point."""
        return 6 * self.frequencies

    def features(self, points: Tensor, *, training: bool) -> tuple[Tensor, Tensor]:
        """Scaled and ordered clouds, augmented in training, and the position of each point before.

        (B, N, 3 or 6) -> (B, N, 3 or 6 + num_waves) float and (B, N) int64.
        """
        xyz, normals = points[..., :3], points[..., 3:]
        xyz = _scale_clouds(xyz, self.scale)
        if training and self.augment != "none":
            xyz, normals = _augment_clouds(xyz, normals, self.augment)
        order = curve_order(xyz, self.order)
        features = torch.cat([xyz, normals, *position_waves(xyz, self.frequencies)], dim=2)
        return features.take_along_dim(order[..., None], dim=1), order


@dataclass
class PointSplit(StoredSplit):
    """Clouds with equal numbers of points. Inputs (B, N, 3 or 6) float, targets (B,) or one per point (B, N)."""

    points: np.ndarray  # (n, N, 3 or 6) float32
    targets: np.ndarray  # (n,) or (n, N) int64
    options: CloudOptions
    training: bool = False
    context: np.ndarray | None = None  # (n, F) float32
    places: Places = UNKNOWN

    def place(self, row: int) -> str:
        return self.places[self.rows[row]]

    def stored(self, row: int) -> np.ndarray:
        """The points (N, 3 or 6) as they were read and subsampled."""
        return np.array(self.points[self.rows[row]])

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

    Clouds with fewer points are counted, keep all of them and repeat random ones, which the points decide.
    `num_points` null means the median of the training clouds, at most MAX_POINTS.
    """

    content_kind = "cloud"
    takes_new = True
    facts_file = "clouds.json"

    num_points: Count | None = 1024
    normals: bool = False
    scale: Scale = "unit_sphere"
    augment: Augment = "none"
    order: Order = "none"
    processes: Processes | None = None
    batch_size: Count | None = 32
    eval_batch_size: Count = 64

    @abstractmethod
    def source(self) -> dict[str, Any]:
        """Everything that decides the clouds, files as paths. Raises DataError if a file is missing."""

    @abstractmethod
    def parts(self) -> dict[Stage, tuple[Clouds, np.ndarray]]:
        """Clouds, as files or arrays, and classes (n,) of each split that the set comes with. Raises DataError."""

    def _spec(self, num_classes: int) -> DataSpec:
        return DataSpec(
            name=self.title,
            num_classes=num_classes,
            channels=(6 if self.normals else 3) + self.options.num_waves,
            max_len=self.cloud_size,
            unordered=self.order == "none",
        )

    @property
    def options(self) -> CloudOptions:
        return CloudOptions(self.scale, self.augment, self.order)

    @cached_property
    def _median_size(self) -> int:
        """Median number of points of some training clouds. Raises DataError if one cannot be read."""
        clouds: Sequence[Path | np.ndarray] = self.parts()["train"][0]
        sampled = sample_evenly(clouds)
        return int(np.median([len(read_cloud(cloud) if isinstance(cloud, Path) else cloud) for cloud in sampled]))

    @property
    def cloud_size(self) -> int:
        """Points of every cloud after subsampling. Raises DataError."""
        return min(self._median_size, MAX_POINTS) if self.num_points is None else self.num_points

    def choices(self) -> list[Choice]:
        if self.num_points is not None:
            return super().choices()
        reason = f"the median training cloud has {self._median_size:,} points"
        if self._median_size > MAX_POINTS:
            reason += f"; more than {MAX_POINTS} take long on a CPU"
        return [Choice("data.num_points", self.cloud_size, reason), *super().choices()]

    def prepare(self) -> Path:
        key = {"title": self.title, "identity": 2, "num_points": self.cloud_size, **self.source()}
        return cached_folder(self.cache_root, self.title, key, self._build)

    @property
    def reader(self) -> Callable[[Any], tuple[np.ndarray, bool]]:
        """Reads a cloud from (place in the set, file or points), and says whether it repeats points."""
        return partial(prepare_cloud, num_points=self.cloud_size)

    def arrays(self, clouds: Clouds, points: np.ndarray, targets: np.ndarray) -> dict[str, np.ndarray]:
        """The arrays of a split that are stored. `points` (n, N, F) are what `reader` made of the clouds.

        Raises DataError.
        """
        del clouds
        return {"points": points, "targets": targets}

    def _build(self, folder: Path) -> None:
        few = 0
        for stage, (clouds, targets) in self.parts().items():
            points = np.empty((0, 0, 0), np.float32)  # of the size of the first cloud
            prepared = in_order(self.reader, enumerate(clouds), self.processes)
            for number, (cloud, repeated) in enumerate(paced(prepared, f"{stage} clouds", len(clouds))):
                if not number:
                    points = np.empty((len(clouds), *cloud.shape), np.float32)
                if cloud.shape != points.shape[1:]:
                    raise DataError(
                        f"only one of {clouds[number]} and {clouds[0]} has normals; give normals to all or to none"
                    )
                points[number] = cloud
                few += repeated
            for name, array in self.arrays(clouds, points, targets).items():
                np.save(folder / f"{stage}_{name}.npy", array)
            Strings.write(folder, f"{IDENTITY}{stage}", self._places(stage, clouds))
        (folder / self.facts_file).write_text(
            json.dumps({"classes": self.class_names(), "with_too_few_points": few}), "utf-8"
        )
        if few:
            log.info(f"{self.title}: {few:,} clouds have fewer than {self.cloud_size} points and repeat some")

    def _places(self, stage: Stage, clouds: Clouds) -> Iterator[str]:
        """The path of each cloud in the data folder, or its number in its split."""
        for number, cloud in enumerate(clouds):
            yield cloud.relative_to(self.path).as_posix() if isinstance(cloud, Path) else f"{stage} cloud {number}"

    def encode_one(self, content: Content) -> Tensor:
        """The subsampled points (N, 3 or 6) of a cloud."""
        points, _ = choose_points(as_cloud(content, "the cloud"), self.cloud_size)
        return torch.from_numpy(self._features(points[None])[0])

    def collate(self, encoded: Sequence[Any]) -> Batch:
        return Batch.unlabelled(self.options.features(torch.stack(list(encoded)), training=False)[0])

    def make_splits(self) -> dict[Stage, Split]:
        splits = {stage: self.split(stage) for stage in STAGES if (self.folder / f"{stage}_points.npy").is_file()}
        train, shares = splits["train"], self.held_out_shares(splits)
        rows = split_by_class(torch.from_numpy(train.targets), shares, self.split_seed, self.title)
        held_out = {s: replace(train, rows=part.numpy(), training=s == "train") for s, part in rows.items()}
        return {**splits, **held_out}

    def split(self, stage: Stage) -> PointSplit:
        """The clouds that the set comes with for a stage, in the order of its files."""
        folder, context = self.folder, self.folder / f"{stage}_context.npy"
        targets = np.load(folder / f"{stage}_targets.npy")
        return PointSplit(
            self._features(np.load(folder / f"{stage}_points.npy", mmap_mode="r")),
            targets,
            self.options,
            context=np.load(context) if context.is_file() else None,
            places=Strings.open(folder, f"{IDENTITY}{stage}"),
            rows=np.arange(len(targets)),
        )

    def _features(self, points: np.ndarray) -> np.ndarray:
        """The columns of the stored points that the model uses. Raises DataError without normals, as for colours."""
        if not self.normals:
            return points[..., :3]
        if points.shape[2] < 6:
            raise DataError(f"{self.title}: the clouds have no normals; set data.normals=false")
        length = float(np.median(np.linalg.norm(points[0, :, 3:6], axis=1)))  # of the first cloud's
        if abs(length - 1) > MAX_NORMAL_ERROR:
            raise DataError(
                f"{self.title}: columns 4 to 6 of a cloud have the length {length:.3g}, but normals have 1; "
                "set data.normals=false"
            )
        return points[..., :6]

    def fingerprint(self) -> dict[str, Any]:
        found = super().fingerprint()
        if few := self.facts()["with_too_few_points"]:
            found["note"] += f"; {few:,} clouds repeat points"
        return found


@dataclass(kw_only=True, eq=False, repr=False)
class PublishedPoints(PointData):
    """A set that is downloaded into `root`. It counts as the published one if its sizes agree."""

    published_sizes: ClassVar[dict[str, int]]

    download: bool = True

    @property
    @abstractmethod
    def archive(self) -> OfficialFile:
        """The archive that is read; its folder has its name."""

    @cached_property
    def shapes(self) -> Path:
        """The folder that is read, downloaded if it is missing. Raises DataError."""
        folder = self.archive.name.removesuffix(".zip")
        return fetch_unpacked(self.archive, self.path, folder, download=self.download, check=False)

    def stamps(self) -> str:
        """One sha256 of the stamps of all clouds, which are files."""
        clouds = (cloud for part, _ in self.parts().values() for cloud in part)
        return digest_of_stamps(cloud for cloud in clouds if isinstance(cloud, Path))

    def is_official(self) -> tuple[bool, str]:
        found = {s: len(np.load(self.folder / f"{s}_targets.npy", mmap_mode="r")) for s in self.published_sizes}
        return found == self.published_sizes, f"clouds counted ({json.dumps(found)}); no checksums are published"


def prepare_cloud(item: tuple[int, Path | np.ndarray], num_points: int) -> tuple[np.ndarray, bool]:
    """`choose_points` of (place in the set, file or points). Raises DataError if the file cannot be read."""
    _, cloud = item
    return choose_points(read_cloud(cloud) if isinstance(cloud, Path) else cloud, num_points)


def position_waves(xyz: Tensor, frequencies: int) -> list[Tensor]:
    """Sine and cosine of coordinates (B, N, 3) at 1, 2, 4, ... half waves per unit: tensors (B, N, 3).

    Source: Tancik et al. 2020, Fourier features let networks learn high frequency functions in low dimensional domains.
    """
    angles = [xyz * (torch.pi * 2**octave) for octave in range(frequencies)]
    return [wave for angle in angles for wave in (angle.sin(), angle.cos())]


def _scale_clouds(xyz: Tensor, scale: Scale) -> Tensor:
    """Centred clouds (B, N, 3), scaled to the unit sphere or to standard deviation 1."""
    if scale == "none":
        return xyz
    xyz = xyz - xyz.mean(dim=1, keepdim=True)
    size: Tensor = xyz.norm(dim=2).amax(dim=1) if scale == "unit_sphere" else xyz.std(dim=(1, 2), correction=0)
    return xyz / size.clamp_min(1e-12)[:, None, None]


def _augment_clouds(xyz: Tensor, normals: Tensor, augment: Augment) -> tuple[Tensor, Tensor]:
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
