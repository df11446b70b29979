"""Orders of the tokens of an image or a point cloud in the sequence.

Written by hand because the packages for Hilbert curves have had no release since 2021 and take one point at a time.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

TokenOrder = Literal["raster", "hilbert", "random_fixed"]


def token_order(order: TokenOrder, grid: tuple[int, int], first: int | None = None) -> Tensor | None:
    """The cell of a grid, counted row by row, of each token: (N,) int64; None for `raster`, the order of the cells.

    `hilbert` follows the Hilbert curve through the smallest square of 2^k cells per side that contains the grid, and
    skips cells outside, where it jumps. `random_fixed` is one permutation that is the same in every run. With `first`,
    only the first cells of the grid are tokens, in any order.
    """
    rows, columns = grid
    cells = torch.arange(rows * columns, device="cpu")[:first]  # values also for a model on the meta device
    match order:
        case "raster":
            return None
        case "hilbert":
            corners = torch.stack([cells // columns, cells % columns], dim=-1)
            return along_curve(corners, bits=(max(grid) - 1).bit_length(), hilbert=True)
        case "random_fixed":
            seeded = torch.Generator().manual_seed(0)
            shuffled = torch.randperm(rows * columns, generator=seeded, device="cpu")
            return shuffled[shuffled < len(cells)]


def along_curve(cells: Tensor, bits: int, *, hilbert: bool) -> Tensor:
    """Positions of cells (..., N, A) in their order along a curve: (..., N) int64.

    The A coordinates have `bits` bits. The Morton curve interleaves them; the Hilbert curve visits neighbouring cells
    in turn. Equal cells keep their order. Source: Skilling 2004, Programming the Hilbert curve.
    """
    if hilbert:
        cells = _hilbert_axes(cells, bits)
    place = torch.zeros_like(cells[..., 0])
    for bit in reversed(range(bits)):
        for axis in cells.unbind(dim=-1):
            place = place << 1 | (axis >> bit & 1)
    return place.argsort(dim=-1, stable=True)


def _hilbert_axes(cells: Tensor, bits: int) -> Tensor:
    """Cells (..., N, A), transformed so that interleaving their bits gives the position on the Hilbert curve."""
    x = list(cells.unbind(dim=-1))
    for bit in (1 << place for place in range(bits - 1, 0, -1)):
        below = bit - 1
        for axis in range(len(x)):
            inside = (x[axis] & bit) != 0
            swapped = (x[0] ^ x[axis]) & below
            first = torch.where(inside, x[0] ^ below, x[0] ^ swapped)
            x[axis] = torch.where(inside, x[axis], x[axis] ^ swapped) if axis else first
            if axis:
                x[0] = first
    for axis in range(1, len(x)):
        x[axis] = x[axis] ^ x[axis - 1]
    parity = torch.zeros_like(x[0])
    for bit in (1 << place for place in range(bits - 1, 0, -1)):
        parity = torch.where((x[-1] & bit) != 0, parity ^ (bit - 1), parity)
    return torch.stack([axis ^ parity for axis in x], dim=-1)
