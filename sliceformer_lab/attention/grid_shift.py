"""Channel-wise shifts along the rows and columns of an image's patches, and squares of patches as sorted windows."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from sliceformer_lab.attention.base import ComputedBuffers, LayerSpec
from sliceformer_lab.batch import Padding
from sliceformer_lab.order import along_curve

OUTSIDE_PLACE = 2**31 - 1  # behind every patch
Sort = Callable[[Tensor, Tensor | None], Tensor]


class GridShift(ComputedBuffers):
    """Rolls each channel on the torus of patches, and puts it into an order whose windows are squares.

    A step s rolls a channel s // columns rows downwards and s % columns columns to the right; nothing leaves its row at
    the right edge, as it does in a sequence. The order is the Morton curve: on a grid with even sides every 4
    patches from its start are a square of 2 x 2, on sides divisible by 4 every 16 a square of 4 x 4. The real patches
    of a padded image keep these two orders among themselves. Prefix tokens (CLS) stay.
    `steps` gives the steps (C,) for a number of patches. Raises ValueError without spec.grid.
    """

    places: Tensor  # (N, 1) place on the curve of each patch of the sequence
    arrivals: Tensor  # (N, C) the same after the roll

    def __init__(self, spec: LayerSpec, steps: Callable[[int], Tensor]) -> None:
        super().__init__()
        if spec.grid is None:
            raise ValueError("grid=true shifts rows and columns of patches, and these tokens have none; use grid=false")
        rows, columns = spec.grid
        cells = torch.arange(rows * columns) if spec.token_order is None else torch.tensor(spec.token_order)
        self.num_prefix = spec.num_prefix
        self.num_patches = len(cells if spec.max_len is None else cells[: spec.max_len - spec.num_prefix])
        row, column = torch.stack([cells // columns, cells % columns])[:, : self.num_patches, None]
        roll = steps(self.num_patches)
        moved = (row + roll // columns) % rows * columns + (column + roll % columns) % columns
        corners = torch.cartesian_prod(torch.arange(rows), torch.arange(columns))
        places = along_curve(corners, bits=(max(spec.grid) - 1).bit_length(), hilbert=False).argsort()
        self.register_buffer("places", places[row * columns + column], persistent=False)
        self.register_buffer("arrivals", places[moved], persistent=False)

    def sorted(self, v: Tensor, padding: Padding | None, sort: Sort) -> Tensor:
        """Values (B, N, C) -> (B, N, C); `sort` takes the rolled patches in the order of windows, and their number."""
        prefix, patches = v[:, : self.num_prefix], v[:, self.num_prefix :]
        sources, back, lengths = self._find_orders(patches, padding)
        return torch.cat([prefix, sort(patches.gather(1, sources), lengths).gather(1, back)], dim=1)

    def source_index(self, v: Tensor, padding: Padding | None, sort_index: Sort) -> Tensor:
        """The token that each value of `sorted` comes from: (B, N, C) -> (B, N, C) int64, -1 on padding."""
        prefix, patches = v[:, : self.num_prefix], v[:, self.num_prefix :]
        sources, back, lengths = self._find_orders(patches, padding)
        index = sort_index(patches.gather(1, sources), lengths)
        tokens = torch.where(index < 0, -1, sources.gather(1, index.clamp(min=0)) + self.num_prefix)
        still = torch.arange(self.num_prefix, device=v.device)[:, None].expand(prefix.shape)
        return torch.cat([still, tokens.gather(1, back)], dim=1)

    def _find_orders(self, patches: Tensor, padding: Padding | None) -> tuple[Tensor, Tensor, Tensor | None]:
        """The patch at each place of the curve, the place of each patch (B, N, C), the numbers of real patches (B,)."""
        num_patches = patches.shape[1]
        if num_patches > self.num_patches:
            raise ValueError(f"this grid has {self.num_patches} patches, got {num_patches}")
        real = None if padding is None else padding.mask[:, self.num_prefix :, None]
        sources = _order_by_place(self.arrivals[:num_patches], real)
        back = _order_by_place(self.places[:num_patches], real).argsort(dim=1)
        lengths = None if padding is None else (padding.lengths - self.num_prefix).clamp(min=1)  # a sort needs one
        return sources.expand_as(patches), back.expand_as(patches), lengths


def _order_by_place(places: Tensor, real: Tensor | None) -> Tensor:
    """Tokens by ascending place, padding last: (N, K), (B, N, 1) -> (B or 1, N, K)."""
    if real is None:
        return places.argsort(dim=0)[None]
    return places.where(real, OUTSIDE_PLACE).argsort(dim=1, stable=True)
