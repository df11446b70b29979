"""From pixels to tokens."""

from __future__ import annotations

import torch
from timm.layers.patch_embed import PatchEmbed
from torch import Tensor, nn

from sliceformer_lab.encoder.hints import without_decay


class ImageEmbedding(nn.Module):
    """One token per patch, a learned CLS token in front if asked. (B, c, H, W) -> (B, N, dim).

    A convolution with the patch as kernel and stride: the linear map of the flattened patch of ViT
    (Dosovitskiy et al. 2021, section 3.1). Raises ValueError if the patch does not tile the image.
    """

    def __init__(self, image_size: tuple[int, int], channels: int, patch_size: int, dim: int, cls: bool) -> None:
        super().__init__()
        height, width = image_size
        if height % patch_size or width % patch_size:
            raise ValueError(
                f"patch_size={patch_size} does not divide the image of {height} x {width} pixels; "
                "choose a divisor of both sides or resize the images"
            )
        self.grid = (height // patch_size, width // patch_size)
        self.num_tokens = self.grid[0] * self.grid[1] + cls
        self.patches = PatchEmbed(image_size, patch_size, channels, dim)
        self.cls = without_decay(nn.Parameter(torch.randn(1, 1, dim) * 0.02)) if cls else None

    def forward(self, images: Tensor) -> Tensor:
        x: Tensor = self.patches(images)
        return x if self.cls is None else torch.cat([self.cls.expand(len(x), -1, -1), x], dim=1)
