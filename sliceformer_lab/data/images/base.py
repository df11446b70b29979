"""Image data: the interface of a source of images, its splits and its fingerprint."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Protocol, Self

import numpy as np
import torch
from torch import Tensor

from sliceformer_lab.batch import Batch
from sliceformer_lab.data.base import DataModule
from sliceformer_lab.data.loader import Split
from sliceformer_lab.data.spec import DataSpec
from sliceformer_lab.data.splits import Stage, split_by_class
from sliceformer_lab.order import TokenOrder

Transform = Callable[[Any], Tensor]  # of what `Images.read` returns to (B, c, H, W)


class Images(Protocol):
    """Labelled images in memory or in files."""

    @property
    def targets(self) -> Tensor:
        """Classes (n,) int64."""

    def read(self, positions: Tensor) -> Any:
        """The images at `positions` (B,), in the form that the set's transforms take."""

    def update(self, digest: Any) -> None:
        """Add the content to a hash."""


@dataclass(frozen=True)
class ArrayImages:
    """Images in memory."""

    pixels: Tensor  # (n, c, H, W) uint8
    targets: Tensor  # (n,) int64

    def read(self, positions: Tensor) -> Tensor:
        return self.pixels[positions]

    def update(self, digest: Any) -> None:
        digest.update(self.pixels.contiguous().numpy())
        digest.update(self.targets.contiguous().numpy())


@dataclass(eq=False)
class ImageSplit(Split):
    """Some images of a source and the transform applied to them."""

    images: Images
    positions: Tensor  # (n,) int64, of the split's examples in the source
    transform: Transform

    def __len__(self) -> int:
        return len(self.positions)

    def subset(self, rows: np.ndarray) -> Self:
        return replace(self, positions=self.positions[torch.from_numpy(rows)])

    def batch(self, rows: list[int]) -> Batch:
        ids = torch.tensor(rows)
        positions = self.positions[ids]
        inputs = self.transform(self.images.read(positions))
        return Batch(inputs=inputs, target=self.images.targets[positions], ids=ids)


@dataclass(kw_only=True, eq=False, repr=False)
class ImageData(DataModule, ABC):
    """Labelled images. A subclass defines how they are read and transformed."""

    num_classes: ClassVar[int]
    token_order: TokenOrder = "raster"

    sources: dict[Stage, Images] = field(init=False, default_factory=dict)

    @abstractmethod
    def read(self) -> dict[Stage, Images]:
        """The splits that the set comes with: 'train', and 'val' and 'test' if they exist. Raises DataError."""

    @abstractmethod
    def transforms(self) -> tuple[Transform, Transform]:
        """Transforms of training images and of all others."""

    def make_splits(self) -> dict[Stage, Split]:
        self.sources = self.read()
        training, evaluation = self.transforms()
        source = self.sources["train"]
        rows = split_by_class(source.targets, self.held_out_shares(self.sources), self.split_seed, self.title)
        splits: dict[Stage, Split] = {
            stage: ImageSplit(images, torch.arange(len(images.targets)), evaluation)
            for stage, images in self.sources.items()
        }
        held_out = {stage: ImageSplit(source, positions, evaluation) for stage, positions in rows.items()}
        return splits | held_out | {"train": ImageSplit(source, rows["train"], training)}

    def content_sha256(self) -> str:
        self.setup()
        digest = hashlib.sha256()
        for stage in sorted(self.sources):
            self.sources[stage].update(digest)
        return digest.hexdigest()

    def _spec(self, size: int, channels: int) -> DataSpec:
        return DataSpec(
            name=self.title,
            num_classes=self.num_classes,
            image_size=(size, size),
            channels=channels,
            token_order=self.token_order,
        )
