"""Image data: the interface of a source of images, its splits and its fingerprint."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from torch import Tensor

from sliceformer_lab.batch import Batch
from sliceformer_lab.data.base import DataModule
from sliceformer_lab.data.cached_data import StoredSplit
from sliceformer_lab.data.loader import Split
from sliceformer_lab.data.spec import Content, DataSpec
from sliceformer_lab.data.splits import Stage, split_by_class
from sliceformer_lab.errors import DataError
from sliceformer_lab.order import TokenOrder

NAMES: dict[Stage, str] = {"train": "training", "val": "validation", "test": "test"}
Transform = Callable[[Any], Tensor]  # of what `Images.read` returns to (B, c, H, W)


class Images(Protocol):
    """Labelled images in memory or in files."""

    @property
    def targets(self) -> Tensor:
        """Classes (n,) int64."""

    def read(self, positions: Tensor) -> Any:
        """The images at `positions` (B,), in the form that the set's transforms take."""

    def place(self, position: int, source: str) -> str:
        """The file of an image, or its number among the pictures of a `source` such as "test"."""

    def picture(self, position: int) -> np.ndarray:
        """An image without augmentation: (H, W, 3) uint8, or (H, W) if it is grey."""

    def update(self, digest: Any) -> None:
        """Add the content to a hash."""

    def identity(self, position: int) -> bytes:
        """The bytes that identify an image's content."""


@dataclass(frozen=True)
class ArrayImages:
    """Images in memory."""

    pixels: Tensor  # (n, c, H, W) uint8
    targets: Tensor  # (n,) int64
    white: int = 255  # the largest pixel value

    def read(self, positions: Tensor) -> Tensor:
        return self.pixels[positions]

    def place(self, position: int, source: str) -> str:
        return f"{source} picture {position}".lstrip()

    def picture(self, position: int) -> np.ndarray:
        """Pixels in 0..255, whatever `white` is."""
        pixels = self.pixels[position].permute(1, 2, 0).numpy()  # (H, W, c)
        scaled = np.round(pixels * (255 / self.white)).astype(np.uint8)
        return scaled[..., 0] if scaled.shape[2] == 1 else scaled

    def identity(self, position: int) -> bytes:
        return self.pixels[position].numpy().tobytes()

    def update(self, digest: Any) -> None:
        digest.update(self.pixels.contiguous().numpy())
        digest.update(self.targets.contiguous().numpy())


def checked_picture(content: Content) -> np.ndarray:
    """A new picture (H, W, 3) or (H, W) uint8. Raises DataError for anything else."""
    if isinstance(content, np.ndarray) and content.dtype == np.uint8 and content.shape[2:] in ((), (3,)):
        return content
    found = f"{content.dtype} {content.shape}" if isinstance(content, np.ndarray) else type(content).__name__
    raise DataError(f"it is {found}, not a picture (H, W, 3) or (H, W) of uint8")


@dataclass(eq=False)
class ImageSplit(StoredSplit):
    """Some images of a source and the transform applied to them."""

    images: Images
    transform: Transform
    source: str = ""  # which of the set's own splits the images are; empty if it has one only

    def place(self, row: int) -> str:
        return self.images.place(int(self.rows[row]), self.source)

    def stored(self, row: int) -> np.ndarray:
        return self.images.picture(int(self.rows[row]))

    def contents(self) -> Iterator[bytes]:
        return map(self.images.identity, self.rows.tolist())

    def targets_at(self, rows: list[int]) -> Tensor:
        return self.images.targets[torch.from_numpy(self.rows[rows])]

    def batch(self, rows: list[int]) -> Batch:
        images = self.images.read(torch.from_numpy(self.rows[rows]))
        return Batch(self.transform(images), self.targets_at(rows), torch.tensor(rows))


@dataclass(kw_only=True, eq=False, repr=False)
class ImageData(DataModule, ABC):
    """Labelled images. A subclass defines how they are read and transformed."""

    num_classes: ClassVar[int]
    classes: ClassVar[tuple[str, ...]] = ()  # their names; empty: their numbers
    content_kind = "picture"
    takes_new = True

    token_order: TokenOrder = "raster"

    sources: dict[Stage, Images] = field(init=False, default_factory=dict)

    def class_names(self) -> tuple[str, ...]:
        return self.classes or super().class_names()

    @abstractmethod
    def read(self) -> dict[Stage, Images]:
        """The splits that the set comes with: 'train', and 'val' and 'test' if they exist. Raises DataError."""

    @abstractmethod
    def source_of(self, picture: np.ndarray) -> Any:
        """One new picture (H, W, 3) or (H, W) uint8, in the form that the set's transforms take."""

    def encode_one(self, content: Content) -> Tensor:
        """A picture as the model takes it, (c, H, W)."""
        return self.transforms()[1](self.source_of(checked_picture(content)))[0]

    def collate(self, encoded: Sequence[Any]) -> Batch:
        return Batch.unlabelled(torch.stack(list(encoded)))

    @abstractmethod
    def transforms(self) -> tuple[Transform, Transform]:
        """Transforms of training images and of all others."""

    def make_splits(self) -> dict[Stage, Split]:
        self.sources = self.read()
        training, evaluation = self.transforms()
        source, name = self.sources["train"], NAMES["train"] if len(self.sources) > 1 else ""
        rows = split_by_class(source.targets, self.held_out_shares(self.sources), self.split_seed, self.title)
        splits: dict[Stage, Split] = {
            stage: ImageSplit(images, evaluation, NAMES[stage], rows=np.arange(len(images.targets)))
            for stage, images in self.sources.items()
        }
        held_out = {stage: ImageSplit(source, evaluation, name, rows=part.numpy()) for stage, part in rows.items()}
        return splits | held_out | {"train": replace(held_out["train"], transform=training)}

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
