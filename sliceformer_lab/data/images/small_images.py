"""Sets of small pictures that fit in memory: what they share, and the digits of scikit-learn."""

from abc import abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import Tensor

from sliceformer_lab.data.base import Fraction, Stage
from sliceformer_lab.data.download import md5_of, verify
from sliceformer_lab.data.images.augment import ArrayTransform
from sliceformer_lab.data.images.base import ArrayImages, ImageData, Images, Transform
from sliceformer_lab.data.spec import DataSpec
from sliceformer_lab.errors import DataError


@dataclass(kw_only=True, eq=False, repr=False)
class SmallImages(ImageData):
    """Pictures held in memory as uint8, so that one core augments tens of thousands a second."""

    image_size: ClassVar[int]
    mean: ClassVar[tuple[float, ...]]
    std: ClassVar[tuple[float, ...]]
    white: ClassVar[int] = 255  # the largest pixel value
    pad: ClassVar[int] = 4  # of the random crop

    augment: Literal["none", "crop", "paper"] = "paper"

    @property
    def spec(self) -> DataSpec:
        return self._spec(size=self.image_size, channels=len(self.mean))

    def transforms(self) -> tuple[Transform, Transform]:
        pad = 0 if self.augment == "none" else self.pad
        flip = self.augment == "paper"
        training = ArrayTransform(self.mean, self.std, self.white, pad, flip)
        return training, ArrayTransform(self.mean, self.std, self.white)

    def labelled(self, pixels: Tensor, targets: Tensor, path: Path) -> ArrayImages:
        """Pixels (n, c, H, W) and labels (n,) read from `path`. Raises DataError if they are not of this set."""
        shape = (len(targets), len(self.mean), self.image_size, self.image_size)
        if pixels.dtype != torch.uint8 or pixels.shape != shape or not len(targets):
            raise DataError(f"{path} holds {pixels.dtype} {tuple(pixels.shape)}, expected torch.uint8 {shape}")
        if not 0 <= int(targets.min()) <= int(targets.max()) < self.num_classes:
            raise DataError(f"{path} holds labels outside 0..{self.num_classes - 1}")
        return ArrayImages(pixels, targets)


@dataclass(kw_only=True, eq=False, repr=False)
class Digits(SmallImages):
    """The 1,797 scans of handwritten digits, 8 x 8, that come with scikit-learn.

    They have no test part: `split_seed` holds out a sixth of every class for it, then `val_fraction` of the rest.
    """

    title = "digits"
    num_classes = 10
    image_size = 8
    mean, std = (0.3053,), (0.3760,)  # of all scans
    white = 16
    pad = 1

    val_fraction: Fraction = 0.2
    augment: Literal["none", "crop"] = "none"

    @property
    def test_share(self) -> float:
        return 1 / 6

    def read(self) -> dict[Stage, Images]:
        scans = load_digits()
        pixels = torch.from_numpy(scans.images.astype(np.uint8)).unsqueeze(1)
        return {"train": ArrayImages(pixels, torch.from_numpy(scans.target.astype(np.int64)))}

    def is_official(self) -> tuple[bool, str]:
        return True, "as installed with scikit-learn"


@dataclass(kw_only=True, eq=False, repr=False)
class OfficialImages(SmallImages):
    """A published set that is downloaded into `root` and known by the md5 sums of its files."""

    root: str
    download: bool = True
    verify: bool = True

    @property
    def path(self) -> Path:
        return Path(self.root).expanduser()

    @abstractmethod
    def obtain(self) -> None:
        """Put the files in place if they are not there. Raises DataError."""

    @abstractmethod
    def checksums(self) -> dict[Path, str]:
        """The files that are read, with the md5 sums that the published ones have."""

    def prepare_data(self) -> None:
        """Download what is missing and check what is there. Raises DataError."""
        self.obtain()
        for path, md5 in self.checksums().items():
            if not path.is_file():
                raise DataError(f"{path} is missing; put it there, or delete {path.parent} to fetch the set again")
            if self.verify:
                verify(path, md5)

    def is_official(self) -> tuple[bool, str]:
        changed = [path.name for path, md5 in self.checksums().items() if md5_of(path) != md5]
        if changed:
            return False, f"differs from the published files in {', '.join(changed)}"
        return True, "md5 sums of all files are the published ones"
