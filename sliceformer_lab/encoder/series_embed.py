"""The embedding of series: from patches of time steps to tokens."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from sliceformer_lab.batch import Padding
from sliceformer_lab.encoder.hidden import Hidden
from sliceformer_lab.encoder.layers import without_decay

SeriesStem = Literal["patch", "conv"]
KERNELS = (7, 5, 3)  # time steps
MIN_PLACES = 8  # places of a long patch that the first convolution keeps


class SeriesEmbedding(nn.Module):
    """One token per patch of a series, with `cls` a learned CLS token from N(0, cls_std^2) in front.

    (B, N, patch_len * features) -> (B, N, dim). stem: `patch`, one linear map of the patch (Nie et al. 2023, PatchTST);
    `conv`, three convolutions over the time steps of the whole series, each with a layer norm of the channels and a
    GELU, with a residual connection from the second on, and then the linear map of each patch. The first one strides
    over long patches and keeps at least MIN_PLACES places of each, because at every step of a long series they would
    take minutes. They see zeros beyond the real patches, so a token does not depend on the padding.
    """

    def __init__(
        self, patch_len: int, features: int, dim: int, *, stem: SeriesStem, cls: bool, cls_std: float = 0.02
    ) -> None:
        super().__init__()
        self.patch_len, self.num_prefix = patch_len, int(cls)
        self.layers = nn.ModuleList()
        self.places = patch_len  # of a patch, after the convolutions
        if stem == "conv":
            self.places = next(n for n in range(min(MIN_PLACES, patch_len), patch_len + 1) if patch_len % n == 0)
            first, *others = KERNELS
            stride = patch_len // self.places
            self.layers.append(SeriesConv(max(first, 2 * stride + 1), features, dim, stride))
            self.layers.extend(SeriesConv(kernel, dim, dim) for kernel in others)
        self.tokens = nn.Linear(self.places * (dim if self.layers else features), dim)
        self.cls = without_decay(nn.Parameter(torch.randn(1, 1, dim) * cls_std)) if cls else None

    def forward(self, patches: Tensor, padding: Padding | None = None, hidden: Hidden | None = None) -> Tensor:
        """Patches (B, N, patch_len * features) -> tokens (B, N, dim), or (B, 1 + N, dim)."""
        x = patches
        if self.layers:
            size, count, _ = patches.shape
            real = None if padding is None else padding.mask.repeat_interleave(self.places, dim=1)[:, None]
            steps = patches.reshape(size, count * self.patch_len, -1).transpose(1, 2)  # (B, F, L)
            for layer in self.layers:
                steps = layer(steps)
                if real is not None:
                    steps = steps * real
            x = steps.transpose(1, 2).reshape(size, count, -1)
        x = self.tokens(x)
        if hidden is not None:
            x = hidden.cover(x)
        return x if self.cls is None else torch.cat([self.cls.expand(x.shape[0], -1, -1), x], dim=1)


class SeriesConv(nn.Module):
    """A convolution over time, a layer norm of each place, and GELU. (B, F, L) -> (B, dim, L / stride)."""

    def __init__(self, kernel: int, channels: int, dim: int, stride: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv1d(channels, dim, kernel, stride, padding=kernel // 2)
        self.norm = nn.LayerNorm(dim)
        self.residual = channels == dim and stride == 1

    def forward(self, steps: Tensor) -> Tensor:
        """Steps (B, F, L) -> (B, dim, L / stride)."""
        found = nn.functional.gelu(self.norm(self.conv(steps).transpose(1, 2)).transpose(1, 2))
        return steps + found if self.residual else found
