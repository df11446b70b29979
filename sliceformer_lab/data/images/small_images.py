"""Sets of small images that fit in memory, and the digits of scikit-learn."""

from abc import abstractmethod
from dataclasses import dataclass
from importlib.metadata import distribution
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from sliceformer_lab.config.option_types import Fraction
from sliceformer_lab.data.base import FolderData
from sliceformer_lab.data.download import md5_of, verify
from sliceformer_lab.data.images.base import ArrayImages, ImageData, Images, Transform
from sliceformer_lab.data.images.crop_flip import ArrayTransform
from sliceformer_lab.data.spec import DataSpec
from sliceformer_lab.data.splits import Stage
from sliceformer_lab.errors import DataError


@dataclass(kw_only=True, eq=False, repr=False)
class SmallImages(ImageData):
    """Images held in memory as uint8, so that one core augments tens of thousands per second."""

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

    def source_of(self, picture: np.ndarray) -> Tensor:
        """Pixels (1, c, H, W) in 0..`white` of a picture that is resized to the set's size."""
        image = Image.fromarray(picture).convert("L" if len(self.mean) == 1 else "RGB")
        pixels = np.asarray(image.resize((self.image_size, self.image_size), Image.Resampling.BICUBIC))
        scaled = np.round(pixels * (self.white / 255)).astype(np.uint8)
        return torch.from_numpy(scaled).reshape(1, self.image_size, self.image_size, -1).permute(0, 3, 1, 2)

    def labelled(self, pixels: Tensor, targets: Tensor, path: Path) -> ArrayImages:
        """Images from pixels (n, c, H, W) and labels (n,) of `path`. Raises DataError if they do not fit this set."""
        shape = (len(targets), len(self.mean), self.image_size, self.image_size)
        if pixels.dtype != torch.uint8 or pixels.shape != shape or not len(targets):
            raise DataError(f"{path} holds {pixels.dtype} {tuple(pixels.shape)}, expected torch.uint8 {shape}")
        if not 0 <= int(targets.min()) <= int(targets.max()) < self.num_classes:
            raise DataError(f"{path} holds labels outside 0..{self.num_classes - 1}")
        return ArrayImages(pixels, targets, self.white)


@dataclass(kw_only=True, eq=False, repr=False)
class Digits(SmallImages):
    """The 1,797 scans of handwritten digits, 8 x 8, that come with scikit-learn.

    The set has no test split: `split_seed` picks a sixth of every class for it, then `val_fraction` of the rest.
    Source: Alpaydin and Kaynak 1998, UCI repository.
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
        """Reads the file directly, because importing scikit-learn takes seconds. Raises DataError if it is missing."""
        path = Path(str(distribution("scikit-learn").locate_file("sklearn/datasets/data/digits.csv.gz")))
        if not path.is_file():
            raise DataError(f"{path} is missing; install scikit-learn again")
        rows = torch.from_numpy(np.loadtxt(path, delimiter=",", dtype=np.uint8))  # 64 pixels and a label
        size = self.image_size
        return {"train": self.labelled(rows[:, :-1].reshape(-1, 1, size, size), rows[:, -1].long(), path)}

    def is_official(self) -> tuple[bool, str]:
        return True, "as installed with scikit-learn"


@dataclass(kw_only=True, eq=False, repr=False)
class OfficialImages(SmallImages, FolderData):
    """A published set that is downloaded into `root` and identified by the md5 sums of its files."""

    download: bool = True
    verify: bool = True

    @abstractmethod
    def obtain(self) -> None:
        """Download the files that are missing. Raises DataError."""

    @abstractmethod
    def checksums(self) -> dict[Path, str]:
        """The files that are read, with the md5 sums of the published ones."""

    def prepare_data(self) -> None:
        """Download the files that are missing and verify all. Raises DataError."""
        self.obtain()
        for path, md5 in self.checksums().items():
            if self.verify or not path.is_file():
                verify(path, md5)

    def is_official(self) -> tuple[bool, str]:
        changed = [path.name for path, md5 in self.checksums().items() if md5_of(path) != md5]
        if changed:
            return False, f"differs from the published files in {', '.join(changed)}"
        return True, "md5 sums of all files are the published ones"
