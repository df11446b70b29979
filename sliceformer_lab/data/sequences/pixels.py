"""CIFAR-10 as sequences of grey pixels: the image task of the Long Range Arena."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import Field
from torch import Tensor

from sliceformer_lab.config.option_types import Count
from sliceformer_lab.data.cache import by_name, cached_folder
from sliceformer_lab.data.images.base import ArrayImages, picture_places
from sliceformer_lab.data.images.cifar import CIFAR10
from sliceformer_lab.data.sequences.base import SequenceData, SequenceSplit, SequenceStore
from sliceformer_lab.data.spec import Content, DataSpec
from sliceformer_lab.data.splits import Stage
from sliceformer_lab.data.strings import Numbered
from sliceformer_lab.order import TokenOrder, token_order

WEIGHTS = (2989, 5870, 1140)  # of red, green and blue, in units of 1/10,000, as in tf.image.rgb_to_grayscale
Grey = Literal["tensorflow", "floor"]
MEAN, STD = 0.48, 0.24  # of pixels in 0..1, as in MEGA's code


def grey(pixels: Tensor, kind: Grey = "tensorflow") -> Tensor:
    """Colours (n, 3, H, W) in 0..255 -> grey levels (n, H, W) uint8.

    `tensorflow`: as tf.image.rgb_to_grayscale, in single precision: colours / 255, their weighted sum, times 255.5 (the
    scale of tf.image.convert_image_dtype), cut to an integer. `floor`: the weighted sum, rounded down.
    """
    channels = pixels.unbind(1)
    if kind == "floor":
        weighted = [weight * channel.int() for weight, channel in zip(WEIGHTS, channels, strict=True)]
        return (sum(weighted[1:], weighted[0]) // 10_000).byte()
    scaled = [
        weight / 10_000 * (channel.float() * (1 / 255)) for weight, channel in zip(WEIGHTS, channels, strict=True)
    ]
    return (sum(scaled[1:], scaled[0]) * 255.5).clamp(0, 255).byte()


@dataclass(kw_only=True, eq=False, repr=False)
class LRAImage(SequenceData):
    """The photographs of CIFAR-10 in grey, as sequences of 32 x 32 pixels row by row.

    A pixel is one of 256 token ids, or with `pixels: values` a number, approximately standardised as in MEGA.
    """

    title = "lra_image"
    content_kind = "picture"

    download: bool = True
    verify: bool = True
    pixels: Literal["tokens", "values"] = "tokens"
    grey: Grey = "tensorflow"
    token_order: TokenOrder = "raster"
    max_len: Annotated[int, Field(ge=1, le=1024)] = 1024
    batch_size: Count = 256

    @property
    def spec(self) -> DataSpec:
        """Its name contains the length."""
        tokens = self.pixels == "tokens"
        return DataSpec(
            name=f"{self.title}_{self.max_len}",
            num_classes=CIFAR10.num_classes,
            max_len=self.max_len,
            vocab_size=256 if tokens else 0,
            channels=0 if tokens else 1,
            grey_levels=True,
        )

    @property
    def photographs(self) -> CIFAR10:
        """The images from which the sequences are made."""
        return CIFAR10(root=self.root, download=self.download, verify=self.verify)

    def class_names(self) -> tuple[str, ...]:
        return CIFAR10.classes

    def source_places(self, stage: Stage) -> Numbered:
        return picture_places(stage)

    def content(self, stored: Content | None) -> Content | None:
        """The grey picture (32, 32)."""
        return np.array(stored).reshape(CIFAR10.image_size, CIFAR10.image_size)

    def prepare_data(self) -> None:
        """Download and verify CIFAR-10, and fill the cache folder. Raises DataError."""
        self.photographs.prepare_data()
        super().prepare_data()

    def prepare(self) -> Path:
        photographs = self.photographs
        made_of = {"files": by_name(photographs.checksums()), "grey": self.grey}
        return cached_folder(self.path, "grey", made_of, self._make_grey)

    def _make_grey(self, folder: Path) -> None:
        for stage, images in self.photographs.read().items():
            if isinstance(images, ArrayImages):
                SequenceStore.write(
                    folder, stage, grey(images.pixels, self.grey).flatten(1).numpy(), images.targets.numpy()
                )

    def is_official(self) -> tuple[bool, str]:
        return self.photographs.is_official()

    def split(self, store: SequenceStore, rows: np.ndarray) -> SequenceSplit:
        scale = None if self.pixels == "tokens" else (255 * MEAN, 255 * STD)
        order = token_order(self.token_order, (CIFAR10.image_size, CIFAR10.image_size), first=self.max_len)
        positions = None if order is None else order.numpy()
        return SequenceSplit(store, self.max_len, self.pad_to_max_len, scale, order=positions, rows=rows)
