"""Normalisation, random crops and mirroring of images that are held in memory as tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F


@dataclass(frozen=True)
class ArrayTransform:
    """Crops and mirrors each image at random, then normalises the batch: uint8 (B, c, H, W) -> float (B, c, H, W)."""

    mean: Sequence[float]  # of each channel, with pixels scaled to 0..1
    std: Sequence[float]
    white: int = 255  # the largest pixel value
    pad: int = 0  # black pixels around the image from which it is cropped
    flip: bool = False  # mirror with probability one half

    def __call__(self, images: Tensor) -> Tensor:
        if self.pad or self.flip:
            images = random_crop_flip(images, self.pad, self.flip)
        mean, std = (torch.tensor(values).view(-1, 1, 1) for values in (self.mean, self.std))
        return (images / self.white - mean) / std


def random_crop_flip(images: Tensor, pad: int, flip: bool) -> Tensor:
    """Crops each zero-padded image of (B, c, H, W) at a random place; with `flip`, mirrors it with probability 1/2."""
    size, channels, height, width = images.shape
    rows = torch.randint(2 * pad + 1, (size, 1)) + torch.arange(height)
    columns = torch.randint(2 * pad + 1, (size, 1)) + torch.arange(width)
    if flip:
        columns = torch.where(torch.rand(size, 1) < 0.5, columns.flip(1), columns)
    sample, channel = torch.arange(size).view(-1, 1, 1, 1), torch.arange(channels).view(-1, 1, 1)
    return F.pad(images, (pad, pad, pad, pad))[sample, channel, rows[:, None, :, None], columns[:, None, None, :]]
