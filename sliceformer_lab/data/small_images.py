"""Sets of small pictures that fit in memory: scikit-learn's digits, MNIST, CIFAR-10 and CIFAR-100."""

import gzip
import math
import zlib
from abc import abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import Tensor

from sliceformer_lab.data.augment import ArrayTransform
from sliceformer_lab.data.base import Fraction, Stage
from sliceformer_lab.data.download import OfficialFile, fetch, fetch_unpacked, md5_of, preparing, verify
from sliceformer_lab.data.image import ArrayImages, ImageData, Images, Transform
from sliceformer_lab.data.pickles import load_arrays
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

    checksums: ClassVar[dict[str, str]]  # file below `folder` -> md5 of its unpacked content

    root: str
    download: bool = True
    verify: bool = True

    @property
    @abstractmethod
    def folder(self) -> Path:
        """Where the set's files are."""

    @abstractmethod
    def obtain(self) -> None:
        """Put the files into `folder` if they are not there. Raises DataError."""

    def prepare_data(self) -> None:
        """Download what is missing and check what is there. Raises DataError."""
        self.obtain()
        if self.verify:
            for name, md5 in self.checksums.items():
                verify(self.file(name), md5)

    def file(self, name: str) -> Path:
        """The path of one of the set's files. Raises DataError if it is not there."""
        path = self.folder / name
        if not path.is_file():
            raise DataError(f"{path} is missing; put it there, or delete {self.folder} to fetch the set again")
        return path

    def is_official(self) -> tuple[bool, str]:
        changed = [name for name, md5 in self.checksums.items() if md5_of(self.file(name)) != md5]
        if changed:
            return False, f"differs from the published files in {', '.join(changed)}"
        return True, "md5 sums of all files are the published ones"


_MNIST_URL = "https://ossci-datasets.s3.amazonaws.com/mnist/"


@dataclass(kw_only=True, eq=False, repr=False)
class MNIST(OfficialImages):
    """Handwritten digits, 28 x 28: 60,000 and 10,000, in the files of root/MNIST/raw, packed (.gz) or not.

    The published recipe mirrors them as if they were photographs; augment=crop does not.
    """

    title = "mnist"
    num_classes = 10
    image_size = 28
    mean, std = (0.1307,), (0.3081,)
    archives = (
        OfficialFile(_MNIST_URL + "train-images-idx3-ubyte.gz", "6bbc9ace898e44ae57da46a324031adb", 9_912_422),
        OfficialFile(_MNIST_URL + "train-labels-idx1-ubyte.gz", "a25bea736e30d166cdddb491f175f624", 28_881),
        OfficialFile(_MNIST_URL + "t10k-images-idx3-ubyte.gz", "2646ac647ad5339dbf082846283269ea", 1_648_877),
        OfficialFile(_MNIST_URL + "t10k-labels-idx1-ubyte.gz", "27ae3e4e09519cfbb04c329615203637", 4_542),
    )
    checksums: ClassVar[dict[str, str]] = {archive.name.removesuffix(".gz"): archive.md5 for archive in archives}

    @property
    def folder(self) -> Path:
        return Path(self.root).expanduser() / "MNIST" / "raw"

    def file(self, name: str) -> Path:
        packed = self.folder / f"{name}.gz"
        return packed if packed.is_file() and not (self.folder / name).is_file() else super().file(name)

    def obtain(self) -> None:
        missing = [a for a in self.archives if not (self.folder / a.name.removesuffix(".gz")).is_file()]
        if any(not (self.folder / archive.name).is_file() for archive in missing):
            with preparing(self.folder):
                for archive in missing:
                    fetch(archive, self.folder, download=self.download, check=self.verify)

    def read(self) -> dict[Stage, Images]:
        return {"train": self._part("train"), "test": self._part("t10k")}

    def _part(self, prefix: str) -> ArrayImages:
        pixels = read_idx(self.file(f"{prefix}-images-idx3-ubyte"), dimensions=3)
        targets = read_idx(self.file(f"{prefix}-labels-idx1-ubyte"), dimensions=1)
        return ArrayImages(pixels.unsqueeze(1), targets.long())


def read_idx(path: Path, dimensions: int) -> Tensor:
    """The uint8 array of an IDX file, packed or not. Raises DataError if it is cut off or something else."""
    try:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{path} is damaged ({error}); delete it and start again") from error
    header = 4 + 4 * dimensions  # two zero bytes, type 8 (uint8), number of dimensions, then each size
    shape = np.frombuffer(content[4:header], dtype=">u4").tolist()
    if content[:4] != bytes([0, 0, 8, dimensions]) or len(content) != header + math.prod(shape):
        raise DataError(f"{path} is damaged (not a whole IDX file); delete it and start again")
    return torch.from_numpy(np.frombuffer(content, np.uint8, offset=header).copy()).view(shape)


_TORONTO = "https://www.cs.toronto.edu/~kriz/"


@dataclass(kw_only=True, eq=False, repr=False)
class CIFAR10(OfficialImages):
    """Colour photographs, 32 x 32, of 10 classes: 50,000 and 10,000, in root/cifar-10-batches-py."""

    title = "cifar10"
    num_classes = 10
    image_size = 32
    mean, std = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)  # the code's, also where a true std is .247
    archive: ClassVar[OfficialFile] = OfficialFile(
        _TORONTO + "cifar-10-python.tar.gz", "c58f30108f718f92721af3b95e74349a", 170_498_071
    )
    inner: ClassVar[str] = "cifar-10-batches-py"
    labels: ClassVar[str] = "labels"
    test_file: ClassVar[str] = "test_batch"
    checksums: ClassVar[dict[str, str]] = {
        "data_batch_1": "c99cafc152244af753f735de768cd75f",
        "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
        "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
        "data_batch_4": "634d18415352ddfa80567beed471001a",
        "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
        "test_batch": "40351d587109b95175f43aff81a1287e",
    }

    @property
    def folder(self) -> Path:
        return Path(self.root).expanduser() / self.inner

    def obtain(self) -> None:
        fetch_unpacked(self.archive, self.folder.parent, self.inner, download=self.download, check=self.verify)

    def read(self) -> dict[Stage, Images]:
        training = [name for name in self.checksums if name != self.test_file]
        return {"train": self._part(training), "test": self._part([self.test_file])}

    def _part(self, names: list[str]) -> ArrayImages:
        batches = [self._batch(self.file(name)) for name in names]
        pixels, targets = (torch.cat(parts) for parts in zip(*batches, strict=True))
        return ArrayImages(pixels, targets)

    def _batch(self, path: Path) -> tuple[Tensor, Tensor]:
        content: Any = load_arrays(path)
        try:
            pixels = torch.from_numpy(content["data"]).view(-1, 3, 32, 32)
            targets = torch.tensor(content[self.labels], dtype=torch.int64)
        except (KeyError, TypeError, RuntimeError) as error:
            raise DataError(f"{path} holds no CIFAR batch ({error}); delete it and fetch it again") from error
        if (
            pixels.dtype != torch.uint8
            or len(pixels) != len(targets)
            or not 0 <= int(targets.min()) <= int(targets.max()) < self.num_classes
        ):
            raise DataError(f"{path} holds no CIFAR batch (pixels and labels do not fit); delete it and fetch it again")
        return pixels, targets


@dataclass(kw_only=True, eq=False, repr=False)
class CIFAR100(CIFAR10):
    """Colour photographs, 32 x 32, of 100 classes: 50,000 and 10,000, in root/cifar-100-python."""

    title = "cifar100"
    num_classes = 100
    mean, std = (0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761)
    archive = OfficialFile(_TORONTO + "cifar-100-python.tar.gz", "eb9058c3a382ffc7106e4002c42a8d85", 169_001_437)
    inner = "cifar-100-python"
    labels = "fine_labels"
    test_file = "test"
    checksums: ClassVar[dict[str, str]] = {
        "train": "16019d7e3df5f24257cddd939b257f8d",
        "test": "f0ef6b0ae62326f3e7ffdfab6717acfc",
    }
