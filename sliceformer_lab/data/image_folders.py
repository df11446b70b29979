"""Sets of pictures in files: Tiny-ImageNet, ImageNet-1k, Dogs-vs-Cats, and your own folder of class folders."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field

from sliceformer_lab.data.augment import ImageAugment, dogs_vs_cats_transform, eval_transform, training_transform
from sliceformer_lab.data.base import Fraction, NonNegative, Positive, Stage
from sliceformer_lab.data.download import OfficialFile, fetch_unpacked
from sliceformer_lab.data.image import FileImages, ImageData, Images, Transform
from sliceformer_lab.data.spec import DataSpec
from sliceformer_lab.errors import DataError

ENDINGS = {".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"}


def class_names(folder: Path) -> list[str]:
    """The sub-folders of a folder, sorted. Raises DataError if there is none."""
    names = (
        sorted(p.name for p in folder.iterdir() if p.is_dir() and not p.name.startswith(".")) if folder.is_dir() else []
    )
    if not names:
        raise DataError(f"{folder} holds no class folders; put one folder of images for each class there")
    return names


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

    def transforms(self) -> tuple[Transform, Transform]:
        evaluation = eval_transform(self.image_size, self.crop_pct)
        if self.augment == "none":
            return evaluation, evaluation
        return training_transform(self.image_size, self.augment, self.auto_augment, self.erase), evaluation


@dataclass(kw_only=True, eq=False, repr=False)
class TinyImageNet(ImageNetLike):
    """100,000 and 10,000 pictures of 200 classes, 64 x 64, in root/tiny-imagenet-200.

    The labels of its test part were never published: its validation part is the test set here, as in the papers.
    """

    title = "tiny_imagenet"
    num_classes = 200
    published_sizes: ClassVar[dict[Stage, int]] = {"train": 100_000, "test": 10_000}
    archive = OfficialFile(
        "http://cs231n.stanford.edu/tiny-imagenet-200.zip", "90528d7ca1a48142e341f4ef8d21d0de", 248_100_043
    )

    download: bool = True
    verify: bool = True
    crop_pct: Annotated[float, Field(gt=0, le=1)] = 1.0

    def prepare_data(self) -> None:
        fetch_unpacked(self.archive, self.path, "tiny-imagenet-200", download=self.download, check=self.verify)

    def read(self) -> dict[Stage, Images]:
        root = self.path / "tiny-imagenet-200"
        classes = class_names(root / "train")
        return {"train": list_images(root, "train", classes, inner="images"), "test": self._annotated(root, classes)}

    def _annotated(self, root: Path, classes: list[str]) -> FileImages:
        table = root / "val" / "val_annotations.txt"
        if not table.is_file():
            raise DataError(f"{table} is missing; it holds the labels of val/images")
        rows = [line.split("\t")[:2] for line in table.read_text().splitlines()]
        for _, name in rows:
            if name not in classes:
                raise DataError(f"{table} names the class {name}, which {root / 'train'} lacks")
        targets = torch.tensor([classes.index(name) for _, name in rows])
        return FileImages(root, [f"val/images/{file}" for file, _ in rows], targets)


@dataclass(kw_only=True, eq=False, repr=False)
class ImageNet1k(ImageNetLike):
    """ILSVRC 2012: root/train/CLASS and root/val/CLASS. It may not be passed on, so nothing downloads it.

    The published validation part is the test set here; validation examples are taken from training.
    """

    title = "imagenet1k"
    num_classes = 1000
    published_sizes: ClassVar[dict[Stage, int]] = {"train": 1_281_167, "test": 50_000}

    val_fraction: Fraction = 0.02

    def prepare_data(self) -> None:
        for part in ("train", "val"):
            if not (self.path / part).is_dir():
                raise DataError(
                    f"{self.path / part} is missing; get ILSVRC2012 from image-net.org and put its images there, "
                    "one folder for each class (n01440764, ...)"
                )

    def read(self) -> dict[Stage, Images]:
        classes = class_names(self.path / "train")
        if len(classes) > self.num_classes:
            raise DataError(f"{self.path / 'train'} holds {len(classes)} class folders, ImageNet-1k has 1,000")
        return {"train": list_images(self.path, "train", classes), "test": list_images(self.path, "val", classes)}


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
        return DataSpec(name=self.title, num_classes=len(self._classes()), image_size=size, channels=3)

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


@dataclass(kw_only=True, eq=False, repr=False)
class DogsVsCats(FileImageData):
    """Kaggle's 25,000 labelled pictures, root/train/cat.0.jpg ..., of which 20 % of each class are the test set.

    Kaggle's own test part has no labels. The paper selects on those 20 %, and scores them with random crops
    (`eval_crop="random"`); here they are scored once, and plain.
    """

    title = "dogs_vs_cats"
    num_classes = 2
    published_sizes: ClassVar[dict[Stage, int]] = {"train": 25_000}
    classes: ClassVar[tuple[str, ...]] = ("cat", "dog")

    batch_size: Positive = 64
    augment: Literal["none", "paper"] = "paper"
    eval_crop: Literal["none", "random"] = "none"

    @property
    def test_share(self) -> float:
        return 0.2

    def prepare_data(self) -> None:
        if not (self.path / "train").is_dir():
            raise DataError(
                f"{self.path / 'train'} is missing; get the Dogs vs. Cats competition's train.zip from kaggle.com "
                f"and unpack it in {self.path}"
            )

    def read(self) -> dict[Stage, Images]:
        files, targets = [], []
        for target, name in enumerate(self.classes):
            found = sorted((self.path / "train").glob(f"{name}.*.jpg"))
            if not found:
                raise DataError(f"{self.path / 'train'} holds no {name}.0.jpg and so on; unpack train.zip there")
            files += [str(path.relative_to(self.path)) for path in found]
            targets += [target] * len(found)
        return {"train": FileImages(self.path, files, torch.tensor(targets))}

    def transforms(self) -> tuple[Transform, Transform]:
        return (
            dogs_vs_cats_transform(self.image_size, random=self.augment == "paper"),
            dogs_vs_cats_transform(self.image_size, random=self.eval_crop == "random"),
        )
