"""Kaggle's Dogs-vs-Cats images."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch

from sliceformer_lab.config.option_types import Count
from sliceformer_lab.data.images.augment import dogs_vs_cats_transform
from sliceformer_lab.data.images.base import Images, Transform
from sliceformer_lab.data.images.folders import FileImageData, FileImages
from sliceformer_lab.data.splits import Stage
from sliceformer_lab.errors import DataError


@dataclass(kw_only=True, eq=False, repr=False)
class DogsVsCats(FileImageData):
    """Kaggle's 25,000 labelled images, root/train/cat.0.jpg ...; 20 % of each class are the test set.

    Kaggle's own test images have no labels. The paper selects the epoch on the test set and scores it with random
    crops; here the selected epoch is scored once, without crops.
    """

    title = "dogs_vs_cats"
    num_classes = 2
    published_sizes: ClassVar[dict[Stage, int]] = {"train": 25_000}
    classes: ClassVar[tuple[str, ...]] = ("cat", "dog")

    batch_size: Count = 64
    augment: Literal["none", "paper"] = "paper"

    @property
    def test_share(self) -> float:
        return 0.2

    def prepare_data(self) -> None:
        if not (self.path / "train").is_dir():
            raise DataError(
                f"{self.path / 'train'} is missing; get train.zip of Kaggle's Dogs vs. Cats competition "
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
            dogs_vs_cats_transform(self.image_size, random=False),
        )
