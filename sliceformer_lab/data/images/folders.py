"""Sets of images in files, and your own folder of class folders."""

import logging
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from PIL import Image
from pydantic import Field
from torch import Tensor

from sliceformer_lab.config.option_types import Count, Fraction, NonNegative, Workers
from sliceformer_lab.data.base import FolderData
from sliceformer_lab.data.class_names import ClassFiles
from sliceformer_lab.data.images.augment import ImageAugment, check_policy, eval_transform, training_transform
from sliceformer_lab.data.images.base import ImageData, Images, ImageSplit, Transform
from sliceformer_lab.data.images.image_memory import ImageMemory
from sliceformer_lab.data.images.picture_files import ENDINGS, picture_size, read_picture, reduced
from sliceformer_lab.data.loader import SeededLoader
from sliceformer_lab.data.own_data import ClassFolders, OwnData, sample_evenly
from sliceformer_lab.data.spec import Choice, DataSpec
from sliceformer_lab.data.splits import Stage
from sliceformer_lab.runs.files import digest_of

MAX_SIDE_PIXELS = 64  # pixels, that image_size=null chooses: a run on one core then takes minutes
MAX_GREY_DIFFERENCE = 4  # mean difference between the largest and the smallest colour value of a pixel, 0 to 255

log = logging.getLogger(__name__)

CropPercent = Annotated[float, Field(gt=0, le=1)]


@dataclass(frozen=True)
class FileImages:
    """Images in files, decoded when they are read, except those in `memory`."""

    root: Path
    files: list[str]  # relative to root
    targets: Tensor  # (n,) int64
    shorter_side: int | None = None  # pixels to which larger images are reduced
    memory: ImageMemory = field(default_factory=ImageMemory)
    by_bytes: bool = False  # the identity of an image is its file's bytes; reading them takes hours on the large sets
    digests: dict[int, bytes] = field(default_factory=dict)  # of the files that were read

    def read(self, positions: Tensor) -> Iterator[Image.Image]:
        """The images in RGB. Raises DataError naming a file that cannot be decoded."""
        for position in positions.tolist():
            known = self.memory.image(position)
            yield self.decoded(position) if known is None else known

    def decoded(self, position: int) -> Image.Image:
        """One image from its file, in RGB. Raises DataError."""
        return read_picture(self.root / self.files[position], self.shorter_side)

    def size(self, position: int) -> tuple[int, int]:
        """Width and height of an image in pixels, from the head of its file. Raises DataError."""
        return picture_size(self.root / self.files[position])

    def place(self, position: int, source: str) -> str:
        """The path in the data folder."""
        del source
        return self.files[position]

    def picture(self, position: int) -> np.ndarray:
        """The whole decoded image (H, W, 3). Raises DataError."""
        return np.asarray(next(self.read(torch.tensor([position]))))

    def identity(self, position: int) -> bytes:
        """The digest of the file's bytes, read once, or its path and size without `by_bytes`."""
        file = self.files[position]
        if not self.by_bytes:
            return f"{file} {(self.root / file).stat().st_size}".encode()
        if position not in self.digests:
            self.digests[position] = digest_of(self.root / file).encode()
        return self.digests[position]

    def update(self, digest: Any) -> None:
        for position, target in enumerate(self.targets.tolist()):
            digest.update(self.identity(position) + f" {target}\n".encode())


def list_images(root: Path, files: ClassFiles) -> FileImages:
    """Images in files of the folder `root`."""
    return FileImages(root, [str(path.relative_to(root)) for path, _ in files], torch.tensor([n for _, n in files]))


@dataclass(kw_only=True, eq=False, repr=False)
class FileImageData(ImageData, FolderData):
    """Images decoded when they are needed. A set counts as the published one if its sizes agree."""

    published_sizes: ClassVar[dict[Stage, int]]

    batch_size: Count | None = 256
    num_workers: Workers = 4
    image_size: Count = 224

    @property
    def spec(self) -> DataSpec:
        return self._spec(size=self.image_size, channels=3)

    def source_of(self, picture: np.ndarray) -> list[Image.Image]:
        return [Image.fromarray(picture).convert("RGB")]

    @abstractmethod
    def prepare_data(self) -> None:
        """Check that the set is there. Raises DataError with the files that are missing."""

    def is_official(self) -> tuple[bool | None, str]:
        sizes = {stage: len(images.targets) for stage, images in self.sources.items()}
        note = "images counted, not checksummed: no sums are published; sha256 is of names, sizes and labels"
        return sizes == self.published_sizes, note


@dataclass(kw_only=True, eq=False, repr=False)
class TimmImages(ImageData):
    """Images in files that timm prepares: 'crop' is random resized crop and flip alone."""

    augment: ImageAugment | None
    auto_augment: str = "rand-m9-mstd0.5-inc1"
    erase: Fraction = 0.25
    crop_pct: CropPercent = 0.875

    def __post_init__(self) -> None:
        super().__post_init__()
        check_policy(self.auto_augment)

    @property
    def training_options(self) -> dict[str, Any]:
        """Further arguments of `training_transform`."""
        return {}

    @property
    @abstractmethod
    def side(self) -> int:
        """Pixels of a side of the input."""

    @property
    def chosen_augment(self) -> ImageAugment:
        """`augment`, or the one that follows from the data."""
        return self.augment or "crop"

    def transforms(self) -> tuple[Transform, Transform]:
        evaluation, augment = eval_transform(self.side, self.crop_pct), self.chosen_augment
        if augment == "none":
            return evaluation, evaluation
        training = training_transform(self.side, augment, self.auto_augment, self.erase, **self.training_options)
        return training, evaluation


@dataclass(kw_only=True, eq=False, repr=False)
class ImageNetLike(FileImageData, TimmImages):
    """A published set with the training recipe of ImageNet."""

    augment: ImageAugment = "timm"

    @property
    def side(self) -> int:
        return self.image_size


@dataclass(kw_only=True, eq=False, repr=False)
class OwnImages(TimmImages, FolderData, OwnData):
    """Your own images. A subclass lists them.

    Up to `memory` GB of decoded images stay in memory; they and all others are reduced to a shorter side of twice
    `image_size`. With `memory` 0 the files are decoded whenever they are read, and nothing is reduced first.
    """

    num_classes = 0  # as many as there are in the files
    batch_sizes = (16, 32)

    image_size: Count | None = None
    batch_size: Count | None = None
    memory: NonNegative = 1.0
    augment: ImageAugment | None = "crop"
    smallest_crop: CropPercent = 0.5
    mirror: bool | None = None
    crop_pct: CropPercent = 1.0

    @property
    def spec(self) -> DataSpec:
        """Lists the images, and looks at some if `image_size` is null. Raises DataError."""
        sizes = self._spec(size=self.side, channels=3)
        return replace(sizes, name=self.own_name, num_classes=len(self.class_names()))

    @property
    def origin(self) -> Path:
        return self.path

    @cached_property
    @abstractmethod
    def parts(self) -> dict[Stage, FileImages]:
        """The images of the splits that the files come with. Raises DataError."""

    def prepare_data(self) -> None:
        """Lists the images. Raises DataError."""
        _ = self.parts

    def choices(self) -> list[Choice]:
        chosen = []
        if self.image_size is None:
            reason = f"the median training image has a shorter side of {self._median_side} pixels"
            if self._median_side > MAX_SIDE_PIXELS:
                reason += f"; more than {MAX_SIDE_PIXELS} take long on a CPU"
            chosen.append(Choice("data.image_size", self.side, reason))
        if self.mirror is None:
            reason = "grey images may be letters or digits" if self._are_grey else "the images are coloured"
            chosen.append(Choice("data.mirror", self._mirrors, reason))
        return [*chosen, *super().choices()]

    @cached_property
    def _sampled_rows(self) -> Tensor:
        """Positions of some training images, spread over the classes."""
        return torch.tensor(sample_evenly(range(len(self.parts["train"].files))))

    @cached_property
    def _median_side(self) -> int:
        return int(np.median([min(self.parts["train"].size(i)) for i in self._sampled_rows.tolist()]))

    @cached_property
    def _are_grey(self) -> bool:
        images = replace(self.parts["train"], shorter_side=MAX_SIDE_PIXELS).read(self._sampled_rows)
        return all(np.ptp(np.asarray(image), axis=2).mean() < MAX_GREY_DIFFERENCE for image in images)

    @property
    def side(self) -> int:
        """`image_size`, or the median of the shorter sides, rounded down so that patches of about an eighth tile it."""
        if self.image_size is not None:
            return self.image_size
        side = min(self._median_side, MAX_SIDE_PIXELS)
        return max(8, side - side % (8 if side >= 32 else 4))

    @property
    def _mirrors(self) -> bool:
        return not self._are_grey if self.mirror is None else self.mirror

    @property
    def training_options(self) -> dict[str, Any]:
        return {"smallest_crop": self.smallest_crop, "mirror": self._mirrors}

    def read(self) -> dict[Stage, Images]:
        side = self._shorter_side
        return {stage: replace(images, shorter_side=side, by_bytes=True) for stage, images in self.parts.items()}

    @property
    def _shorter_side(self) -> int | None:
        """Pixels to which larger images are reduced."""
        return 2 * self.side if self.memory else None

    def source_of(self, picture: np.ndarray) -> Any:
        return [reduced(Image.fromarray(picture), self._shorter_side)]

    def read_file(self, path: Path) -> np.ndarray:
        """A new picture, reduced while it is decoded, as those of the splits are. Raises DataError."""
        return np.asarray(read_picture(path, self._shorter_side))

    def _loader(self, stage: Stage, batch_size: int) -> SeededLoader:
        if self.memory:
            _ = self._bytes_in_memory  # not in `setup`, which only counts the images when options are chosen
        return super()._loader(stage, batch_size)

    @cached_property
    def _bytes_in_memory(self) -> int:
        """Decodes the images that the splits use, as many as fit into `memory`. Raises DataError."""
        limit, used, kept, total = int(self.memory * 1e9), 0, 0, 0
        splits = [split for split in self.splits.values() if isinstance(split, ImageSplit)]
        for images in (images for images in self.sources.values() if isinstance(images, FileImages)):
            positions = np.sort(np.concatenate([split.rows for split in splits if split.images is images]))
            used += images.memory.fill(positions.tolist(), images.decoded, limit - used)
            kept, total = kept + len(images.memory.places), total + len(positions)
        note = f"keeping {kept:,} of {total:,} images in memory ({used / 1e6:,.0f} MB)"
        if kept < total:
            note += (
                f", data.memory={self.memory} GB; the others are decoded in every epoch, by data.num_workers processes"
            )
        log.info(f"{self.own_name}: {note}")
        return used


@dataclass(kw_only=True, eq=False, repr=False)
class ImageFolder(OwnImages, ClassFolders):
    """Your own images: root/train/CLASS, also root/val/CLASS and root/test/CLASS if you have them, or only root/CLASS.

    For a missing test or validation folder, `test_fraction` and then `val_fraction` of every class are held out.
    """

    title = "image_folder"
    note = "your own images; sha256 is of files and labels"
    endings = ENDINGS
    examples_are = "images"

    @cached_property
    def parts(self) -> dict[Stage, FileImages]:
        return {stage: list_images(self.path, files) for stage, files in self.class_files.items()}

    def class_names(self) -> tuple[str, ...]:
        return tuple(self.folder_classes())
