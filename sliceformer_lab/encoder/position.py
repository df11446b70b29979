"""Positions to add to the tokens: a learned table, or sines and cosines of one or two coordinates."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from sliceformer_lab.attention.base import ComputedBuffers
from sliceformer_lab.encoder.encoder_options import PositionKind
from sliceformer_lab.encoder.layers import without_decay


class Position(nn.Module):
    """Adds the first N rows of a table to N tokens. (B, N, C) -> (B, N, C)."""

    table: Tensor  # (1, max_len, C)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.table[:, : x.shape[1]]


class LearnedPosition(Position):
    """One trained row per position, prefix tokens included (ViT, Dosovitskiy et al. 2021, equation 1)."""

    def __init__(self, max_len: int, dim: int, std: float) -> None:
        super().__init__()
        self.table = without_decay(nn.Parameter(torch.empty(1, max_len, dim)))
        nn.init.trunc_normal_(self.table, std=std, a=-100 * std, b=100 * std)  # cuts nothing


class SinCosPosition(ComputedBuffers, Position):
    """A fixed table, not saved with the weights, because its arguments determine it."""

    def __init__(self, table: Tensor) -> None:
        super().__init__()
        self.register_buffer("table", table[None], persistent=False)


def build_position(
    kind: PositionKind,
    max_len: int,
    dim: int,
    grid: tuple[int, int] | None = None,
    order: Tensor | None = None,
    *,
    std: float = 0.02,
) -> Position | None:
    """The module that adds positions; None for `none` and for `rope`, which rotates queries and keys instead.

    `order` (N,) is the patch, counted row by row, of each token: `sincos2d` follows the patches, `learned` and `sincos`
    follow the order of the tokens. `std` is that of learned positions at the start.
    Raises ValueError for `sincos2d` without a grid and for a width that is odd per coordinate.
    """
    match kind:
        case "learned":
            return LearnedPosition(max_len, dim, std)
        case "sincos":
            return SinCosPosition(sincos(torch.arange(max_len), dim))
        case "sincos2d":
            if grid is None:
                raise ValueError("position=sincos2d needs the patch grid of an image; choose position=sincos")
            num_prefix = max_len - grid[0] * grid[1]
            table = sincos_2d(grid, dim, num_prefix)
            if order is not None:
                table = torch.cat([table[:num_prefix], table[num_prefix:][order]])
            return SinCosPosition(table)
        case "rope" | "none":
            return None


def sincos(coordinate: Tensor, dim: int) -> Tensor:
    """Sines and cosines, interleaved, of a coordinate (N,) at frequencies 10000^(-2i/dim). -> (N, dim).

    Vaswani et al. 2017, section 3.5. Raises ValueError if dim is odd.
    """
    if dim % 2:
        raise ValueError(f"sin-cos positions need an even number of channels per coordinate, got {dim}")
    frequency = 10000.0 ** (-torch.arange(0, dim, 2) / dim)
    angle = coordinate[:, None] * frequency  # (N, dim / 2)
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1)


def sincos_2d(grid: tuple[int, int], dim: int, num_prefix: int) -> Tensor:
    """Half of the channels from a patch's row, half from its column; zero for prefix tokens. -> (N, dim)."""
    rows, columns = grid
    row = sincos(torch.arange(rows), dim // 2).repeat_interleave(columns, dim=0)
    column = sincos(torch.arange(columns), dim - dim // 2).repeat(rows, 1)
    return torch.cat([torch.zeros(num_prefix, dim), torch.cat([row, column], dim=1)])
