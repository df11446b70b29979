"""Augmentation of images that are decoded from files, by timm and torchvision."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

import torch
from PIL.Image import Image
from timm.data.transforms_factory import create_transform
from torch import Tensor
from torchvision.transforms import v2

ImageAugment = Literal["none", "crop", "timm"]


@dataclass(frozen=True)
class EachImage:
    """Applies a transform to each decoded image and stacks the results to (B, 3, S, S)."""

    transform: Callable[[Image], Tensor]

    def __call__(self, images: Iterable[Image]) -> Tensor:
        return torch.stack([self.transform(image) for image in images])


def training_transform(
    image_size: int,
    augment: ImageAugment,
    auto_augment: str,
    erase: float,
    *,
    smallest_crop: float = 0.08,
    mirror: bool = True,
) -> EachImage:
    """Random resized crop and mirroring ('crop'), with RandAugment and random erasing ('timm').

    A crop takes between `smallest_crop` and all of the image's area.
    """
    full = augment == "timm"
    return EachImage(
        create_transform(
            image_size,
            is_training=True,
            scale=(smallest_crop, 1.0),
            hflip=0.5 if mirror else 0.0,
            interpolation="bicubic",
            color_jitter=0.0,  # RandAugment has its own
            auto_augment=auto_augment if full else None,
            re_prob=erase if full else 0.0,
            re_mode="pixel",
        )
    )


def check_policy(policy: str) -> None:
    """Raises ValueError for a name that is no policy of timm."""
    try:
        training_transform(32, "timm", policy, 0.0)
    except AssertionError as error:
        raise ValueError(f"auto_augment={policy} is not a policy of timm ({error})") from error


def eval_transform(image_size: int, crop_pct: float) -> EachImage:
    """The normalised centre of the image; the crop takes `crop_pct` of the resized shorter side."""
    return EachImage(create_transform(image_size, crop_pct=crop_pct, interpolation="bicubic"))


def dogs_vs_cats_transform(image_size: int, random: bool) -> EachImage:
    """Resizes to a square, then with `random` crops and flips; pixels stay in 0..1, as in Sliceformer's code."""
    square = v2.Resize((image_size, image_size))
    crop = [v2.RandomResizedCrop(image_size), v2.RandomHorizontalFlip()] if random else []
    return EachImage(v2.Compose([square, *crop, v2.ToImage(), v2.ToDtype(torch.float32, scale=True)]))
