"""MNIST in the files that its authors publish."""

import gzip
import math
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from sliceformer_lab.data.download import OfficialFile, fetch
from sliceformer_lab.data.images.base import ArrayImages, Images
from sliceformer_lab.data.images.small_images import OfficialImages
from sliceformer_lab.data.splits import Stage
from sliceformer_lab.errors import DataError

_MNIST_URL = "https://ossci-datasets.s3.amazonaws.com/mnist/"


@dataclass(kw_only=True, eq=False, repr=False)
class MNIST(OfficialImages):
    """Handwritten digits, 28 x 28: 60,000 for training and 10,000 for testing, in root/MNIST/raw, gzipped or not.

    The published recipe mirrors the digits; augment=crop does not.
    """

    title = "mnist"
    num_classes = 10
    image_size = 28
    mean, std = (0.1307,), (0.3081,)
    archives: ClassVar[tuple[OfficialFile, ...]] = (
        OfficialFile(_MNIST_URL + "train-images-idx3-ubyte.gz", "f68b3c2dcbeaaa9fbdd348bbdeb94873", 9_912_422),
        OfficialFile(_MNIST_URL + "train-labels-idx1-ubyte.gz", "d53e105ee54ea40749a09fcbcd1e9432", 28_881),
        OfficialFile(_MNIST_URL + "t10k-images-idx3-ubyte.gz", "9fb629c4189551a2d022fa330f9573f3", 1_648_877),
        OfficialFile(_MNIST_URL + "t10k-labels-idx1-ubyte.gz", "ec29112dd5afa0611ce80d1b7f02629c", 4_542),
    )
    unpacked: ClassVar[tuple[str, ...]] = (  # md5 sums of the unpacked files
        "6bbc9ace898e44ae57da46a324031adb",
        "a25bea736e30d166cdddb491f175f624",
        "2646ac647ad5339dbf082846283269ea",
        "27ae3e4e09519cfbb04c329615203637",
    )

    def obtain(self) -> None:
        for archive in self.archives:
            if not self._file(archive).is_file():
                fetch(archive, self._folder, download=self.download, check=self.verify)

    def checksums(self) -> dict[Path, str]:
        files = (
            (self._file(archive), archive.digest, md5)
            for archive, md5 in zip(self.archives, self.unpacked, strict=True)
        )
        return {path: packed if path.suffix == ".gz" else unpacked for path, packed, unpacked in files}

    def read(self) -> dict[Stage, Images]:
        train_images, train_labels, test_images, test_labels = map(self._file, self.archives)
        return {"train": self._read_part(train_images, train_labels), "test": self._read_part(test_images, test_labels)}

    @property
    def _folder(self) -> Path:
        return self.path / "MNIST" / "raw"

    def _file(self, archive: OfficialFile) -> Path:
        """The path of one of the files: the packed file unless only the unpacked one is there."""
        packed = self._folder / archive.name
        return packed.with_suffix("") if packed.with_suffix("").is_file() and not packed.is_file() else packed

    def _read_part(self, images: Path, labels: Path) -> ArrayImages:
        return self.labelled(read_idx(images, dimensions=3).unsqueeze(1), read_idx(labels, dimensions=1).long(), images)


def read_idx(path: Path, dimensions: int) -> Tensor:
    """The uint8 array of an IDX file, gzipped or not. Raises DataError if the file is damaged."""
    try:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{path} is damaged ({error}); delete it to download it again") from error
    header = 4 + 4 * dimensions  # two zero bytes, type 8 (uint8), number of dimensions, then each size
    shape = np.frombuffer(content[4:header], dtype=">u4").tolist()
    if content[:4] != bytes([0, 0, 8, dimensions]) or len(content) != header + math.prod(shape):
        raise DataError(f"{path} is damaged (not a complete IDX file); delete it to download it again")
    return torch.from_numpy(np.frombuffer(content, np.uint8, offset=header).copy()).view(shape)
