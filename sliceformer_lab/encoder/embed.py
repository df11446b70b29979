"""The embeddings: from pixels, token ids or numbers to tokens."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from sliceformer_lab.attention.base import ComputedBuffers
from sliceformer_lab.encoder.hidden import Hidden
from sliceformer_lab.encoder.layers import ConvPatchEmbed, PatchEmbed, without_decay
from sliceformer_lab.order import TokenOrder, token_order

Stem = Literal["patch", "conv"]


class ImageEmbedding(ComputedBuffers):
    """One token per patch, with `cls` a learned CLS token from N(0, cls_std^2) in front. (B, c, H, W) -> (B, N, dim).

    stem: `patch`, a convolution with the patch as kernel and stride, which is ViT's linear map of the flattened patch
    (Dosovitskiy et al. 2021, section 3.1); `conv`, small convolutions (Xiao et al. 2021). The patches follow the CLS
    token in the given order. Raises ValueError if the patch does not tile the image.
    """

    order: Tensor | None  # (patches,) the patch, counted row by row, of each token; None: row by row

    def __init__(
        self,
        image_size: tuple[int, int],
        channels: int,
        patch_size: int,
        dim: int,
        *,
        cls: bool,
        cls_std: float = 0.02,
        order: TokenOrder = "raster",
        stem: Stem = "patch",
    ) -> None:
        super().__init__()
        height, width = image_size
        if height % patch_size or width % patch_size:
            raise ValueError(
                f"patch_size={patch_size} does not divide the image of {height} x {width} pixels; "
                "choose a divisor of both sides or resize the images"
            )
        self.grid = (height // patch_size, width // patch_size)
        self.num_tokens = self.grid[0] * self.grid[1] + cls
        self.register_buffer("order", token_order(order, self.grid), persistent=False)
        self.patches = (PatchEmbed if stem == "patch" else ConvPatchEmbed)(patch_size, channels, dim)
        self.cls = without_decay(nn.Parameter(torch.randn(1, 1, dim) * cls_std)) if cls else None

    def forward(self, images: Tensor, hidden: Hidden | None = None) -> Tensor:
        x: Tensor = self.patches(images)
        if self.order is not None:
            x = x[:, self.order]
        if hidden is not None:
            x = hidden.cover(x)
        return x if self.cls is None else torch.cat([self.cls.expand(x.shape[0], -1, -1), x], dim=1)


class TokenEmbedding(nn.Module):
    """One token per id of a vocabulary, or per vector of numbers; with `cls` a learned CLS token in front.

    Ids (B, N), or numbers (B, N, F) -> (B, N, dim). With `vocab_size` 0 the inputs are numbers of `channels` features.
    A table starts from N(0, std^2). If sequences are `padded`, id 0 is padding and its row is not learned. With
    `hidden` a table of that width, a GELU and a linear map follow each other. `dropout` sets whole tokens to zero and
    scales the others.
    """

    def __init__(
        self,
        vocab_size: int,
        channels: int,
        dim: int,
        *,
        cls: bool = False,
        cls_std: float = 0.02,
        std: float = 1.0,
        padded: bool = True,
        hidden: int | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.tokens: nn.Module
        if vocab_size:
            table = torch.randn(vocab_size, hidden or dim) * std
            padding_idx = 0 if padded else None
            self.tokens = nn.Embedding.from_pretrained(table, freeze=False, padding_idx=padding_idx)  # type: ignore[no-untyped-call]
            if hidden is not None:
                self.tokens = nn.Sequential(self.tokens, nn.GELU(), nn.Linear(hidden, dim))
        else:
            self.tokens = nn.Linear(channels, dim)
        self.dropout = nn.Dropout1d(dropout)
        self.num_prefix = int(cls)
        self.cls = without_decay(nn.Parameter(torch.randn(1, 1, dim) * cls_std)) if cls else None

    def forward(self, inputs: Tensor, hidden: Hidden | None = None) -> Tensor:
        x: Tensor = self.dropout(self.tokens(inputs))
        if hidden is not None:
            x = hidden.cover(x)
        return x if self.cls is None else torch.cat([self.cls.expand(x.shape[0], -1, -1), x], dim=1)
