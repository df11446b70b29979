"""Control: a learned convolution over neighbouring tokens, separately for each channel."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from sliceformer_lab.attention.base import LayerSpec
from sliceformer_lab.attention.linear_map import LinearMix
from sliceformer_lab.batch import Padding
from sliceformer_lab.config.option_types import Count


class DepthwiseConv(LinearMix):
    """Depthwise convolution over tokens; over rows and columns of patches if the layer has a grid.

    Padding and tokens outside count as zero. On a grid the prefix tokens (CLS) are not mixed, so pool by the mean. The
    neighbours of a patch are those in the image, whatever the order of the sequence.
    Raises ValueError for an even `kernel_size`, which has no middle.
    """

    complexity = "N C k (on a grid k^2)"
    source = "control"
    order: Tensor | None  # (N,) the patch, counted row by row, of each token
    places: Tensor | None  # (N,) the token of each patch

    def __init__(self, spec: LayerSpec, *, kernel_size: Count = 3) -> None:
        super().__init__(spec)
        if kernel_size % 2 == 0:
            raise ValueError(f"kernel_size must be odd, got {kernel_size}")
        kind = nn.Conv1d if spec.grid is None else nn.Conv2d
        self.conv = kind(self.width, self.width, kernel_size, padding="same", groups=self.width, bias=False)
        order = None if spec.token_order is None else torch.tensor(spec.token_order)
        self.register_buffer("order", order, persistent=False)
        self.register_buffer("places", None if order is None else order.argsort(), persistent=False)

    def mix(
        self,
        v: Tensor,
        q: Tensor | None = None,
        k: Tensor | None = None,
        *,
        padding: Padding | None = None,
        bias: Tensor | None = None,
    ) -> Tensor:
        """(B, N, C) -> (B, N, C)."""
        del q, k, bias
        if padding is not None:
            v = v.masked_fill(~padding.mask[:, :, None], 0)
        prefix, tokens = v[:, : self.spec.num_prefix], v[:, self.spec.num_prefix :].transpose(1, 2)
        if self.places is not None:
            tokens = tokens[:, :, self.places]
        image = tokens if self.spec.grid is None else torch.unflatten(tokens, 2, self.spec.grid)
        mixed = self.conv(image).flatten(2)
        if self.order is not None:
            mixed = mixed[:, :, self.order]
        return torch.cat([prefix, mixed.transpose(1, 2)], dim=1)
