"""Any classification set of torchvision, by the name of its class."""

import hashlib
import inspect
from dataclasses import dataclass, field
from functools import cached_property
from http.client import HTTPException
from typing import Any, Protocol

import numpy as np
import torch
from PIL import Image, ImageOps

from sliceformer_lab.data.images.folders import FileImages, OwnImages
from sliceformer_lab.data.images.picture_files import reduced
from sliceformer_lab.data.library_sets import LibraryData, unread_set
from sliceformer_lab.data.splits import Stage
from sliceformer_lab.errors import DataError

SPLIT_NAMES: dict[Stage, tuple[str, ...]] = {  # by which torchvision's classes call their splits
    "train": ("train", "trainval", "train-standard"),
    "val": ("val", "valid"),
    "test": ("test",),
}
NUM_COMPARED_TARGETS = 16  # of a set's list, with those of its pictures


class PictureSet(Protocol):
    """A split of a set of torchvision."""

    def __len__(self) -> int: ...

    def __getitem__(self, position: int) -> tuple[Image.Image, int]: ...


@dataclass(frozen=True)
class LibraryImages(FileImages):
    """Images that a library's set decodes when they are read, except those in `memory`."""

    pictures: PictureSet = field(kw_only=True)

    def _image(self, position: int) -> Image.Image:
        """A whole image in RGB, turned as its EXIF orientation says."""
        image, _ = self.pictures[position]
        return ImageOps.exif_transpose(image).convert("RGB")

    def decoded(self, position: int) -> Image.Image:
        return reduced(self._image(position), self.shorter_side)

    def size(self, position: int) -> tuple[int, int]:
        return self._image(position).size

    def place(self, position: int, source: str) -> str:
        return f"{source} {self.files[position]}".lstrip()

    def identity(self, position: int) -> bytes:
        """The digest of the decoded pixels."""
        if position not in self.digests:
            self.digests[position] = hashlib.sha256(np.asarray(self._image(position)).tobytes()).hexdigest().encode()
        return self.digests[position]


@dataclass(kw_only=True, eq=False, repr=False)
class TorchvisionData(OwnImages, LibraryData):
    """The set that torchvision's class `dataset` downloads and reads, with its own splits where it has them.

    `options` are further keywords of that class, such as split=letters of EMNIST. Images are prepared as those of
    `OwnImages`. What torchvision checks of the files is all that is checked: for CIFAR and MNIST the tasks cifar10,
    cifar100 and mnist also verify md5 sums and open pickles without running what is in them.
    """

    title = "torchvision"
    note = "torchvision does not say whether these are the published files; sha256 is of pixels and classes"
    library = "torchvision.datasets"

    download: bool = True

    @property
    def own_name(self) -> str:
        return self.name or self.dataset

    @cached_property
    def _sets(self) -> dict[Stage, Any]:
        """The splits that the class has. Raises DataError."""
        known = inspect.signature(self.library_class.__init__).parameters
        if "train" in known or any(base.__name__ == "MNIST" for base in self.library_class.__mro__):
            return {"train": self._build_set(train=True), "test": self._build_set(train=False)}
        if "split" not in known or "split" in (self.options or {}):
            return {"train": self._build_set()}
        found: dict[Stage, Any] = {}
        for stage, names in SPLIT_NAMES.items():
            for name in names:
                try:
                    found[stage] = self._build_set(split=name)
                    break
                except _UnknownSplitError:
                    continue
        if "train" not in found:
            raise DataError(f"data.dataset={self.dataset} has no split to train on; set data.options={{split: ...}}")
        return found

    def _build_set(self, **split: Any) -> Any:
        takes = inspect.signature(self.library_class.__init__).parameters
        download = {"download": self.download} if "download" in takes or "kwargs" in takes else {}
        root = {"root": self.path} if "root" in takes else {}
        try:
            return self.library_class(**{**root, **(self.options or {}), **split, **download})
        except (ValueError, TypeError) as error:
            if "split" in split and "split" in str(error):
                raise _UnknownSplitError(str(error)) from error
            raise DataError(
                f"data.dataset={self.dataset}: {error}; data.options gives the keywords of the class"
            ) from error
        except (OSError, RuntimeError, HTTPException) as error:
            advice = f"put the files of {self.dataset} there as torchvision's documentation says"
            raise unread_set(error, self.path, "torchvision", advice) from error

    @cached_property
    def parts(self) -> dict[Stage, FileImages]:
        return {stage: self._images(pictures) for stage, pictures in self._sets.items()}

    def _images(self, pictures: Any) -> LibraryImages:
        image, label = pictures[0]
        if not isinstance(image, Image.Image) or isinstance(label, bool) or not isinstance(label, int | np.integer):
            raise DataError(
                f"data.dataset={self.dataset} gives {type(image).__name__} and {type(label).__name__}; only sets of "
                "pictures with one class each can be used"
            )
        files = [f"picture {number}" for number in range(len(pictures))]
        targets = _own_targets(pictures)
        if targets is None:
            targets = np.array([int(pictures[position][1]) for position in range(len(pictures))])
        return LibraryImages(self.path, files, torch.from_numpy(targets), pictures=pictures)

    def class_names(self) -> tuple[str, ...]:
        pictures = self._sets["train"]
        count = 1 + max(int(images.targets.max()) for images in self.parts.values())
        names = getattr(pictures, "classes", None) or getattr(pictures, "categories", None)
        if names is None or len(names) < count or (len(names) > count and _own_targets(pictures) is None):
            return tuple(map(str, range(count)))
        return tuple(name if isinstance(name, str) else str(name[0]) for name in names)


class _UnknownSplitError(Exception):
    """A class of torchvision has no split of this name."""


def _own_targets(pictures: PictureSet) -> np.ndarray | None:
    """The list of classes (n,) that a set keeps; None if its pictures have others, as some options ask for."""
    compared = np.unique(np.linspace(0, len(pictures) - 1, NUM_COMPARED_TARGETS).astype(int)).tolist()
    for attribute in ("targets", "labels", "_labels"):
        found = getattr(pictures, attribute, None)
        if found is not None and len(found) == len(pictures) and np.ndim(found) == 1:
            targets = np.asarray(found).astype(np.int64)
            if all(int(pictures[position][1]) == targets[position] for position in compared):
                return targets
    return None
