"""Sets of images in files, and your own folder of class folders."""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar

import torch
from PIL import Image
from pydantic import Field
from torch import Tensor

from sliceformer_lab.config.option_types import Count, Fraction, Natural
from sliceformer_lab.data.images.augment import ImageAugment, eval_transform, training_transform
from sliceformer_lab.data.images.base import ImageData, Images, Transform
from sliceformer_lab.data.spec import DataSpec
from sliceformer_lab.data.splits import Stage
from sliceformer_lab.errors import DataError

ENDINGS = {".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"}


CropPercent = Annotated[float, Field(gt=0, le=1)]


@dataclass(frozen=True)
class FileImages:
    """Images in files, decoded when they are read."""

    root: Path
    files: list[str]  # relative to root
    targets: Tensor  # (n,) int64

    def read(self, positions: Tensor) -> Iterator[Image.Image]:
        """The images in RGB. Raises DataError naming a file that cannot be decoded."""
        for position in positions.tolist():
            path = self.root / self.files[position]
            try:
                with Image.open(path) as image:
                    yield image.convert("RGB")
            except (OSError, SyntaxError, ValueError) as error:  # PIL has no error class of its own
                raise DataError(f"{path} cannot be read as an image ({error}); replace or delete it") from error

    def update(self, digest: Any) -> None:
        """Add paths, sizes and labels to a hash: reading every image would take hours on the large sets."""
        for file, target in zip(self.files, self.targets.tolist(), strict=True):
            digest.update(f"{file} {(self.root / file).stat().st_size} {target}\n".encode())


def class_names(folder: Path) -> list[str]:
    """The sorted names of the sub-folders of a folder. Raises DataError if there is none."""
    if folder.is_dir():
        names = sorted(p.name for p in folder.iterdir() if p.is_dir() and not p.name.startswith("."))
        if names:
            return names
    raise DataError(f"{folder} holds no class folders; put one folder per class there")


def list_images(root: Path, folder: str, classes: Sequence[str], inner: str = "") -> FileImages:
    """The images below root/folder/CLASS/inner, labelled by the position of CLASS in `classes`.

    Raises DataError naming a folder without images, or a class that is not in `classes`.
    """
    files, targets = [], []
    for name in class_names(root / folder):
        if name not in classes:
            raise DataError(f"{root / folder / name} is a class without training images; add some or delete the folder")
        found = [p for p in sorted((root / folder / name / inner).glob("*")) if p.suffix.lower() in ENDINGS]
        if not found:
            raise DataError(f"{root / folder / name / inner} holds no images; fill it or delete it")
        files += [str(path.relative_to(root)) for path in found]
        targets += [classes.index(name)] * len(found)
    return FileImages(root, files, torch.tensor(targets))


@dataclass(kw_only=True, eq=False, repr=False)
class FileImageData(ImageData):
    """Images decoded when they are needed. A set counts as the published one if its sizes agree."""

    published_sizes: ClassVar[dict[Stage, int]]

    root: str
    batch_size: Count = 256
    num_workers: Natural = 4
    image_size: Count = 224

    @property
    def spec(self) -> DataSpec:
        return self._spec(size=self.image_size, channels=3)

    @property
    def path(self) -> Path:
        return Path(self.root).expanduser()

    @abstractmethod
    def prepare_data(self) -> None:
        """Check that the set is there. Raises DataError with the files that are missing."""

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
    crop_pct: CropPercent = 0.875

    def __post_init__(self) -> None:
        super().__post_init__()
        try:
            self.transforms()
        except AssertionError as error:  # raised by timm for an unknown policy
            raise ValueError(f"auto_augment={self.auto_augment} is not a policy of timm ({error})") from error

    def transforms(self) -> tuple[Transform, Transform]:
        evaluation = eval_transform(self.image_size, self.crop_pct)
        if self.augment == "none":
            return evaluation, evaluation
        return training_transform(self.image_size, self.augment, self.auto_augment, self.erase), evaluation


@dataclass(kw_only=True, eq=False, repr=False)
class ImageFolder(ImageNetLike):
    """Your own images: root/train/CLASS, also root/val/CLASS and root/test/CLASS if you have them, or only root/CLASS.

    For a missing test or validation folder, `test_fraction` and then `val_fraction` of every class are held out.
    """

    title = "image_folder"
    num_classes = 0  # as many as there are folders

    batch_size: Count = 64
    image_size: Count = 64
    test_fraction: Fraction = 0.1
    augment: ImageAugment = "crop"
    crop_pct: CropPercent = 1.0

    @property
    def spec(self) -> DataSpec:
        """Lists the class folders. Raises DataError if there are none."""
        return replace(self._spec(size=self.image_size, channels=3), num_classes=len(self._classes()))

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
