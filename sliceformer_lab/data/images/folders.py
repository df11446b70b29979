"""Sets of pictures in files: what they share, and your own folder of class folders."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

import torch
from pydantic import Field

from sliceformer_lab.data.base import Fraction, NonNegative, Positive, Stage
from sliceformer_lab.data.images.augment import ImageAugment, eval_transform, training_transform
from sliceformer_lab.data.images.base import FileImages, ImageData, Images, Transform
from sliceformer_lab.data.spec import DataSpec
from sliceformer_lab.errors import DataError

ENDINGS = {".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"}


def class_names(folder: Path) -> list[str]:
    """The sub-folders of a folder, sorted. Raises DataError if there is none."""
    if folder.is_dir():
        names = sorted(p.name for p in folder.iterdir() if p.is_dir() and not p.name.startswith("."))
        if names:
            return names
    raise DataError(f"{folder} holds no class folders; put one folder of images for each class there")


def list_images(root: Path, folder: str, classes: Sequence[str], inner: str = "") -> FileImages:
    """The pictures below root/folder/CLASS/inner, labelled by the position of CLASS in `classes`.

    Raises DataError naming a folder that holds no picture, or a class that is not among `classes`.
    """
    files, targets = [], []
    for name in class_names(root / folder):
        if name not in classes:
            raise DataError(
                f"{root / folder / name} is a class that the training part lacks; add it there or delete it"
            )
        found = [p for p in sorted((root / folder / name / inner).glob("*")) if p.suffix.lower() in ENDINGS]
        if not found:
            raise DataError(f"{root / folder / name / inner} holds no images; fill it or delete it")
        files += [str(path.relative_to(root)) for path in found]
        targets += [classes.index(name)] * len(found)
    return FileImages(root, files, torch.tensor(targets))


@dataclass(kw_only=True, eq=False, repr=False)
class FileImageData(ImageData):
    """Pictures decoded as they are needed. What makes a set the published one is told by its size alone."""

    published_sizes: ClassVar[dict[Stage, int]]

    root: str
    batch_size: Positive = 256
    num_workers: NonNegative = 4
    image_size: Positive = 224

    @property
    def spec(self) -> DataSpec:
        return self._spec(size=self.image_size, channels=3)

    @property
    def path(self) -> Path:
        return Path(self.root).expanduser()

    @abstractmethod
    def prepare_data(self) -> None:
        """See that the set is there. Raises DataError saying what to put where."""

    def is_official(self) -> tuple[bool, str]:
        sizes = {stage: len(images.targets) for stage, images in self.sources.items()}
        note = "images counted, not checksummed: no sums are published; sha256 is of names, sizes and labels"
        return sizes == self.published_sizes, note


@dataclass(kw_only=True, eq=False, repr=False)
class ImageNetLike(FileImageData):
    """The training recipe of ImageNet by timm; 'crop' is random resized crop and flip alone."""

    augment: ImageAugment = "timm"
    auto_augment: str = "rand-m9-mstd0.5-inc1"
    erase: Fraction = 0.25
    crop_pct: Annotated[float, Field(gt=0, le=1)] = 0.875

    def __post_init__(self) -> None:
        super().__post_init__()
        try:
            self.transforms()
        except AssertionError as error:  # timm's way to refuse a policy
            raise ValueError(f"auto_augment={self.auto_augment} is none of timm's policies ({error})") from error

    def transforms(self) -> tuple[Transform, Transform]:
        evaluation = eval_transform(self.image_size, self.crop_pct)
        if self.augment == "none":
            return evaluation, evaluation
        return training_transform(self.image_size, self.augment, self.auto_augment, self.erase), evaluation


@dataclass(kw_only=True, eq=False, repr=False)
class ImageFolder(ImageNetLike):
    """Your own pictures: root/train/CLASS with val/ and test/ beside it if you have them, or just root/CLASS.

    Of every class, `test_fraction` and then `val_fraction` are held out from training for the parts that are not there.
    """

    title = "image_folder"

    batch_size: Positive = 64
    image_size: Positive = 64
    test_fraction: Fraction = 0.1
    augment: ImageAugment = "crop"
    crop_pct: Annotated[float, Field(gt=0, le=1)] = 1.0

    @property
    def spec(self) -> DataSpec:
        """Lists the class folders, so it raises DataError if there are none."""
        size = (self.image_size, self.image_size)
        return DataSpec(
            name=self.title,
            num_classes=len(self._classes()),
            image_size=size,
            channels=3,
            token_order=self.token_order,
        )

    @property
    def test_share(self) -> float:
        return self.test_fraction

    def prepare_data(self) -> None:
        self._classes()

    def read(self) -> dict[Stage, Images]:
        classes, train = self._classes(), self._train_folder()
        parts: dict[Stage, Images] = {"train": list_images(self.path, train, classes)}
        for stage in ("val", "test"):
            if train and (self.path / stage).is_dir():
                parts[stage] = list_images(self.path, stage, classes)
        return parts

    def is_official(self) -> tuple[bool, str]:
        return False, "your own images; sha256 is of names, sizes and labels"

    def _train_folder(self) -> str:
        return "train" if (self.path / "train").is_dir() else ""

    def _classes(self) -> list[str]:
        return class_names(self.path / self._train_folder())
