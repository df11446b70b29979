"""Control: a learned convolution over neighbouring tokens, separately for each channel."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sliceformer_lab.attention.base import ALONE, Attention, BlockInputs, LayerSpec
from sliceformer_lab.attention.patch_grid import PatchGrid
from sliceformer_lab.config.option_types import OddCount


class DepthwiseConv(Attention):
    """Depthwise convolution over tokens; over rows and columns of patches if the layer has a grid.

    Padding and tokens outside count as zero. On a grid the prefix tokens (CLS) are not mixed, so pool by the mean.
    A causal layer reads the last `kernel_size` tokens in place of those around each.
    Raises ValueError for a causal layer on a grid.
    """

    maps_channels = True
    accepts_causal = True
    complexity = "N C k (on a grid k^2)"
    source = "control"

    def __init__(self, spec: LayerSpec, *, kernel_size: OddCount = 3) -> None:
        super().__init__(spec)
        self.patches = PatchGrid(spec)
        self.mixes_prefix = not self.patches.num_prefix
        if spec.causal and spec.grid is not None:
            raise ValueError("a causal convolution reads a sequence, not a grid of patches; set grid to None")
        self.before = kernel_size - 1 if spec.causal else 0  # zeros in front
        kind = nn.Conv1d if spec.grid is None else nn.Conv2d
        padding = "valid" if spec.causal else "same"
        self.conv = kind(self.width, self.width, kernel_size, padding=padding, groups=self.width, bias=False)

    def mix(self, v: Tensor, q: Tensor | None = None, k: Tensor | None = None, given: BlockInputs = ALONE) -> Tensor:
        """(B, N, C) -> (B, N, C)."""
        v = given.zero_padding(v)
        prefix, tokens = v[:, : self.patches.num_prefix], v[:, self.patches.num_prefix :]
        image = F.pad(self.patches.to_grid(tokens).permute(0, 3, 1, 2), (self.before, 0))
        mixed = self.conv(image if self.spec.grid else image[:, :, 0])
        image = mixed if self.spec.grid else mixed[:, :, None]
        return torch.cat([prefix, self.patches.to_tokens(image.permute(0, 2, 3, 1))], dim=1)
