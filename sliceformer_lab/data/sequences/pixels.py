"""CIFAR-10 as sequences of grey pixels: the image task of the Long Range Arena."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field
from torch import Tensor

from sliceformer_lab.config.option_types import Count
from sliceformer_lab.data.cache import by_name, cached_folder
from sliceformer_lab.data.images.base import ArrayImages
from sliceformer_lab.data.images.cifar import CIFAR10
from sliceformer_lab.data.sequences.base import PixelData, SequenceStore

WEIGHTS = (2989, 5870, 1140)  # of red, green and blue, in units of 1/10,000, as in tf.image.rgb_to_grayscale
MEAN, STD = 0.48, 0.24  # of pixels in 0..1, as in MEGA's code


def grey(pixels: Tensor) -> Tensor:
    """Colours (n, 3, H, W) in 0..255 -> grey levels (n, H, W) uint8.

    As tf.image.rgb_to_grayscale, in single precision: colours / 255, their weighted sum, times 255.5 (the scale of
    tf.image.convert_image_dtype), cut to an integer.
    """
    channels = pixels.unbind(1)
    scaled = [
        weight / 10_000 * (channel.float() * (1 / 255)) for weight, channel in zip(WEIGHTS, channels, strict=True)
    ]
    return (sum(scaled[1:], scaled[0]) * 255.5).clamp(0, 255).byte()


@dataclass(kw_only=True, eq=False, repr=False)
class LRAImage(PixelData):
    """The photographs of CIFAR-10 in grey, as sequences of 32 x 32 pixels row by row.

    With `pixels: values`, numbers are approximately standardised as in MEGA.
    """

    title = "lra_image"
    side = CIFAR10.image_size
    scale = (255 * MEAN, 255 * STD)

    download: bool = True
    verify: bool = True
    max_len: Annotated[int, Field(ge=1, le=1024)] = 1024
    batch_size: Count = 256

    @property
    def photographs(self) -> CIFAR10:
        """The images from which the sequences are made."""
        return CIFAR10(root=self.root, download=self.download, verify=self.verify)

    def class_names(self) -> tuple[str, ...]:
        return CIFAR10.classes

    def prepare_data(self) -> None:
        """Download and verify CIFAR-10, and fill the cache folder. Raises DataError."""
        self.photographs.prepare_data()
        super().prepare_data()

    def prepare(self) -> Path:
        made_of = {"files": by_name(self.photographs.checksums()), "grey": "tensorflow"}
        return cached_folder(self.path, "grey", made_of, self._make_grey)

    def _make_grey(self, folder: Path) -> None:
        for stage, images in self.photographs.read().items():
            if isinstance(images, ArrayImages):
                pixels = grey(images.pixels).flatten(1).numpy()
                SequenceStore.write(folder, stage, pixels, images.targets.numpy())

    def is_official(self) -> tuple[bool, str]:
        return self.photographs.is_official()
