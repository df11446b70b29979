"""What happens to a batch of images between storage and model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from PIL.Image import Image
from timm.data.transforms_factory import create_transform
from torch import Tensor
from torch.nn import functional as F
from torchvision.transforms import v2

ImageAugment = Literal["none", "crop", "timm"]


@dataclass(frozen=True)
class ArrayTransform:
    """Normalises a batch, after a random crop and flip of each image. uint8 (B, c, H, W) -> float (B, c, H, W)."""

    mean: Sequence[float]  # of each channel, with pixels scaled to 0..1
    std: Sequence[float]
    white: int = 255  # the largest pixel value
    pad: int = 0  # crop from the image with so many black pixels around it
    flip: bool = False  # mirror every second image

    def __call__(self, images: Tensor) -> Tensor:
        if self.pad or self.flip:
            images = random_crop_flip(images, self.pad, self.flip)
        mean, std = (torch.tensor(values).view(-1, 1, 1) for values in (self.mean, self.std))
        return (images / self.white - mean) / std


def random_crop_flip(images: Tensor, pad: int, flip: bool) -> Tensor:
    """Each image of (B, c, H, W) at a random place in its zero-padded self, mirrored with probability one half."""
    size, channels, height, width = images.shape
    rows = torch.randint(2 * pad + 1, (size, 1)) + torch.arange(height)
    columns = torch.randint(2 * pad + 1, (size, 1)) + torch.arange(width)
    if flip:
        columns = torch.where(torch.rand(size, 1) < 0.5, columns.flip(1), columns)
    sample, channel = torch.arange(size).view(-1, 1, 1, 1), torch.arange(channels).view(-1, 1, 1)
    return F.pad(images, (pad, pad, pad, pad))[sample, channel, rows[:, None, :, None], columns[:, None, None, :]]


@dataclass(frozen=True)
class EachImage:
    """Applies a transform to each decoded image and stacks the results, (B, 3, S, S)."""

    transform: Callable[[Image], Tensor]

    def __call__(self, images: Iterable[Image]) -> Tensor:
        return torch.stack([self.transform(image) for image in images])


def training_transform(image_size: int, augment: ImageAugment, auto_augment: str, erase: float) -> EachImage:
    """Random resized crop and flip ('crop'); with RandAugment and random erasing too ('timm')."""
    full = augment == "timm"
    return EachImage(
        create_transform(
            image_size,
            is_training=True,
            interpolation="bicubic",
            color_jitter=0.0,  # RandAugment has its own
            auto_augment=auto_augment if full else None,
            re_prob=erase if full else 0.0,
            re_mode="pixel",
        )
    )


def eval_transform(image_size: int, crop_pct: float) -> EachImage:
    """The centre of the image, normalised; the crop is `crop_pct` of the resized shorter side."""
    return EachImage(create_transform(image_size, crop_pct=crop_pct, interpolation="bicubic"))


def dogs_vs_cats_transform(image_size: int, random: bool) -> EachImage:
    """Squeezed to a square, then (`random`) a random resized crop and flip; pixels stay 0..1 (Sliceformer's code)."""
    square = v2.Resize((image_size, image_size))
    crop = [v2.RandomResizedCrop(image_size), v2.RandomHorizontalFlip()] if random else []
    return EachImage(v2.Compose([square, *crop, v2.ToImage(), v2.ToDtype(torch.float32, scale=True)]))
