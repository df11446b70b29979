"""Tiny-ImageNet and ImageNet-1k in the layout of their owners."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import torch

from sliceformer_lab.config.option_types import Fraction
from sliceformer_lab.data.class_names import class_names, labelled_files
from sliceformer_lab.data.download import OfficialFile, fetch_unpacked
from sliceformer_lab.data.images.base import Images
from sliceformer_lab.data.images.folders import CropPercent, FileImages, ImageNetLike, list_images
from sliceformer_lab.data.images.picture_files import ENDINGS
from sliceformer_lab.data.splits import Stage
from sliceformer_lab.errors import DataError


@dataclass(kw_only=True, eq=False, repr=False)
class TinyImageNet(ImageNetLike):
    """Images of 200 classes, 64 x 64, in root/tiny-imagenet-200: 100,000 to train on, 10,000 to test on.

    The labels of its test images were never published: its validation images are the test set, as in the papers.
    """

    title = "tiny_imagenet"
    num_classes = 200
    published_sizes: ClassVar[dict[Stage, int]] = {"train": 100_000, "test": 10_000}
    archive = OfficialFile(
        "http://cs231n.stanford.edu/tiny-imagenet-200.zip", "90528d7ca1a48142e341f4ef8d21d0de", 248_100_043
    )

    download: bool = True
    verify: bool = True
    crop_pct: CropPercent = 1.0

    def prepare_data(self) -> None:
        fetch_unpacked(self.archive, self.path, "tiny-imagenet-200", download=self.download, check=self.verify)

    def class_names(self) -> tuple[str, ...]:
        """The WordNet numbers of the classes."""
        return tuple(class_names(self.path / "tiny-imagenet-200" / "train"))

    def read(self) -> dict[Stage, Images]:
        root = self.path / "tiny-imagenet-200"
        classes = class_names(root / "train")
        training = labelled_files(root / "train", classes, ENDINGS, "images", inner="images")
        return {"train": list_images(root, training), "test": self._read_annotated(root, classes)}

    def _read_annotated(self, root: Path, classes: list[str]) -> FileImages:
        table = root / "val" / "val_annotations.txt"
        if not table.is_file():
            raise DataError(f"{table} is missing; it holds the labels of val/images")
        rows = [line.split("\t")[:2] for line in table.read_text().splitlines()]
        for _, name in rows:
            if name not in classes:
                raise DataError(f"{table} names the class {name}, for which {root / 'train'} has no folder")
        targets = torch.tensor([classes.index(name) for _, name in rows])
        return FileImages(root, [f"val/images/{file}" for file, _ in rows], targets)


@dataclass(kw_only=True, eq=False, repr=False)
class ImageNet1k(ImageNetLike):
    """ILSVRC 2012 in root/train/CLASS and root/val/CLASS. Its licence forbids handing it on, so nothing downloads it.

    The published validation images are the test set; validation examples are held out from training.
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

    def class_names(self) -> tuple[str, ...]:
        """The WordNet numbers of the classes."""
        return tuple(class_names(self.path / "train"))

    def read(self) -> dict[Stage, Images]:
        classes = class_names(self.path / "train")
        if len(classes) > self.num_classes:
            raise DataError(f"{self.path / 'train'} holds {len(classes)} class folders, ImageNet-1k has 1,000")
        parts: dict[Stage, str] = {"train": "train", "test": "val"}
        return {
            stage: list_images(self.path, labelled_files(self.path / part, classes, ENDINGS, "images"))
            for stage, part in parts.items()
        }
