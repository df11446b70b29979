"""Image data: where pictures come from, how they are split, and what is said about the copy that was read."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from sliceformer_lab.batch import Batch
from sliceformer_lab.data.base import DataModule, Stage
from sliceformer_lab.data.loader import Split
from sliceformer_lab.data.spec import DataSpec
from sliceformer_lab.errors import DataError
from sliceformer_lab.order import TokenOrder

Transform = Callable[[Any], Tensor]


@dataclass(frozen=True)
class ArrayImages:
    """Pictures in memory."""

    pixels: Tensor  # (n, c, H, W) uint8
    targets: Tensor  # (n,) int64

    def read(self, positions: Tensor) -> Tensor:
        return self.pixels[positions]

    def update(self, digest: Any) -> None:
        """Put the content into a hash."""
        digest.update(self.pixels.contiguous().numpy())
        digest.update(self.targets.contiguous().numpy())


@dataclass(frozen=True)
class FileImages:
    """Pictures in files, decoded when they are read."""

    root: Path
    files: list[str]  # relative to root
    targets: Tensor  # (n,) int64

    def read(self, positions: Tensor) -> Iterator[Image.Image]:
        """The pictures in RGB. Raises DataError naming a file that cannot be decoded."""
        for position in positions.tolist():
            path = self.root / self.files[position]
            try:
                with Image.open(path) as image:
                    yield image.convert("RGB")
            except (OSError, SyntaxError, ValueError) as error:  # PIL has no error class of its own
                raise DataError(f"{path} cannot be read as an image ({error}); replace or delete it") from error

    def update(self, digest: Any) -> None:
        """Put paths, sizes and labels into a hash: reading every picture would take hours on the large sets."""
        for file, target in zip(self.files, self.targets.tolist(), strict=True):
            digest.update(f"{file} {(self.root / file).stat().st_size} {target}\n".encode())


Images = ArrayImages | FileImages


@dataclass(eq=False)
class ImageSplit(Split):
    """Some of the pictures of a source, with what is done to them."""

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


def carve(targets: Tensor, fraction: float, seed: int) -> tuple[Tensor, Tensor]:
    """Positions (kept, held out) of `targets` (n,), both shuffled; `fraction` of every class is held out."""
    order = torch.randperm(len(targets), generator=torch.Generator().manual_seed(seed))
    by_class = order[targets[order].argsort(stable=True)]
    counts = targets.bincount()
    rank_in_class = torch.arange(len(targets)) - (counts.cumsum(0) - counts)[targets[by_class]]
    held = torch.zeros(len(targets), dtype=torch.bool)
    held[by_class] = rank_in_class < (counts * fraction).round()[targets[by_class]]
    return order[~held[order]], order[held[order]]


@dataclass(kw_only=True, eq=False, repr=False)
class ImageData(DataModule, ABC):
    """Labelled pictures. A subclass says how they are read and transformed."""

    title: ClassVar[str]
    num_classes: ClassVar[int]
    token_order: TokenOrder = "raster"

    sources: dict[Stage, Images] = field(init=False, default_factory=dict)

    @property
    def test_share(self) -> float:
        """How much of every class is held out to test on, where the set has no test part of its own."""
        return 0.0

    @abstractmethod
    def read(self) -> dict[Stage, Images]:
        """What the set comes with: 'train', and 'val' and 'test' where they exist. Raises DataError."""

    @abstractmethod
    def transforms(self) -> tuple[Transform, Transform]:
        """What is done to training pictures, and to the others."""

    @abstractmethod
    def is_official(self) -> tuple[bool, str]:
        """Whether what was read is the published set, and how that was found out."""

    def make_splits(self) -> dict[Stage, Split]:
        self.sources = self.read()
        training, evaluation = self.transforms()
        source = self.sources["train"]
        kept = carve(source.targets, 0.0, self.split_seed)[0]
        splits: dict[Stage, Split] = {}
        shares: dict[Stage, float] = {"test": self.test_share, "val": self.val_fraction}
        for stage, share in shares.items():
            if own := self.sources.get(stage):
                splits[stage] = ImageSplit(own, torch.arange(len(own.targets)), evaluation)
            else:
                kept, held = self._hold_out(kept, share, stage)
                splits[stage] = ImageSplit(source, held, evaluation)
        return splits | {"train": ImageSplit(source, kept, training)}

    def _hold_out(self, positions: Tensor, share: float, stage: Stage) -> tuple[Tensor, Tensor]:
        """Split positions of the training source into (kept, held out)."""
        kept, held = carve(self.sources["train"].targets[positions], share, self.split_seed)
        if (share > 0 and not len(held)) or not len(kept):
            raise DataError(
                f"{self.title}: holding out {share} of every class for {stage} takes {len(held)} of {len(positions)} "
                f"images; add images or change data.{stage}_fraction"
            )
        return positions[kept], positions[held].sort().values

    def fingerprint(self) -> dict[str, Any]:
        self.setup()
        digest = hashlib.sha256()
        for stage in sorted(self.sources):
            self.sources[stage].update(digest)
        sha256 = digest.hexdigest()
        official, note = self.is_official()
        return self.identified(sha256, official, note)

    def _spec(self, size: int, channels: int) -> DataSpec:
        return DataSpec(
            name=self.title,
            num_classes=self.num_classes,
            image_size=(size, size),
            channels=channels,
            token_order=self.token_order,
        )
