"""Control: every token receives the mean of its neighbours, the mixer of PoolFormer."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from sliceformer_lab.attention.base import ALONE, Attention, BlockInputs, LayerSpec
from sliceformer_lab.attention.patch_grid import PatchGrid
from sliceformer_lab.config.option_types import OddCount


class Pooling(Attention):
    """The mean of the neighbouring tokens that exist, minus the token itself: no parameters, no content.

    The window is `kernel_size` tokens of a sequence, or kernel_size x kernel_size patches of an image. On an image the
    prefix tokens (CLS) are not mixed: they receive what the mean of themselves would give.
    """

    maps_channels = True
    complexity = "N C k (on a grid k^2)"
    source = "control; MetaFormer, arXiv 2111.11418, equation (2)"

    def __init__(self, spec: LayerSpec, *, kernel_size: OddCount = 3, subtract_input: bool = True) -> None:
        super().__init__(spec)
        self.patches = PatchGrid(spec)
        self.mixes_prefix = not self.patches.num_prefix
        self.window = (kernel_size if spec.grid else 1, kernel_size)
        self.subtract_input = subtract_input

    def mix(self, v: Tensor, q: Tensor | None = None, k: Tensor | None = None, given: BlockInputs = ALONE) -> Tensor:
        """(B, N, C) -> (B, N, C)."""
        num_prefix = self.patches.num_prefix
        prefix, tokens = v[:, :num_prefix], v[:, num_prefix:]
        present = torch.ones_like(v[:1, :, :1]) if given.padding is None else given.padding.mask[:, :, None].to(v.dtype)
        present = present[:, num_prefix:]
        mean = self._sum_windows(tokens.where(present > 0, 0)) / self._sum_windows(present).clamp(min=1)
        mixed = torch.cat([prefix, mean], dim=1)
        return mixed - v if self.subtract_input else mixed

    def _sum_windows(self, tokens: Tensor) -> Tensor:
        """The sum over the window of each token (B, N, C) -> (B, N, C); what is outside counts as zero."""
        image = self.patches.to_grid(tokens).permute(0, 3, 1, 2)
        edge = (self.window[0] // 2, self.window[1] // 2)
        sums = F.avg_pool2d(image, self.window, stride=1, padding=edge, divisor_override=1)
        return self.patches.to_tokens(sums.permute(0, 2, 3, 1))
