"""Every channel shifted by a fixed number of tokens, without the wrap-around of CSP: TSM, ShiftViT, S2-MLP."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from sliceformer_lab.attention.base import ALONE, Attention, BlockInputs, LayerSpec
from sliceformer_lab.attention.patch_grid import PatchGrid
from sliceformer_lab.config.option_types import Count
from sliceformer_lab.permute.schedule import Shift as Schedule
from sliceformer_lab.permute.schedule import shift_steps

Fill = Literal["zero", "keep", "circular"]


class Shift(Attention):
    """Each channel of the values reads from a token a fixed number of steps away: no parameters, no content.

    `steps`: a schedule of CSP (a circular shift reduces it by the longest length); `tsm`, where one channel of `n_div`
    reads from the next token and one from the one before; `shiftvit`, where one of `n_div` reads from the patch to the
    right, left, below and above; `s2`, where a quarter reads from each. These two use rows and columns; prefix tokens
    (CLS) then stay. A sequence is one row. Where no real token is at that place, `fill` gives zero, the token's own
    value, or the value that a circular sequence has.
    Raises ValueError for a schedule without spec.max_len, and for a circular shift on rows and columns.
    """

    maps_channels = True
    complexity = "N C"
    source = "TSM, arXiv 1811.08383; ShiftViT, arXiv 2201.10801; S2-MLP, arXiv 2106.07477"
    deviation = (
        "ShiftViT: shifts the residual stream itself, before the shortcut; here the values between two projections"
    )
    steps: Tensor  # (C,) int64, positive: from a token further left
    rows: Tensor  # (C,) int64, positive: from a patch further up

    def __init__(
        self,
        spec: LayerSpec,
        *,
        steps: Schedule | Literal["tsm", "shiftvit", "s2"] = "linear_paper",
        fill: Fill = "zero",
        n_div: Count = 8,
    ) -> None:
        super().__init__(spec)
        self.patches = PatchGrid(spec)
        self.on_grid = spec.grid is not None and steps in ("shiftvit", "s2")
        if self.on_grid and fill == "circular":
            raise ValueError(f"fill=circular shifts along the sequence; steps={steps} shifts rows and columns")
        self.fill = fill
        right, down = self._steps(steps, n_div)
        self.mixes_prefix = not self.on_grid and (fill == "circular" or min(right) < 0)  # the first token has no left
        self.order_sensitive = any((*right, *down))  # fewer than n_div channels do not move
        self.register_buffer("steps", torch.tensor(right), persistent=False)
        self.register_buffer("rows", torch.tensor(down), persistent=False)

    def _steps(self, steps: str, n_div: int) -> tuple[list[int], list[int]]:
        """Steps to the right and downwards of each channel."""
        width, spec = self.width, self.spec
        still = [0] * width
        if steps in ("tsm", "shiftvit"):
            part = width // n_div
            right = [-1] * part + [1] * part
            down = [0] * 2 * part + ([-1] * part + [1] * part if steps == "shiftvit" else [])
            return (right + still)[:width], (down + still)[:width]
        if steps == "s2":
            quarter = [sum(c >= width * j // 4 for j in (1, 2, 3)) for c in range(width)]
            return [(0, 0, 1, -1)[j] for j in quarter], [(1, -1, 0, 0)[j] for j in quarter]
        if spec.max_len is None:
            raise ValueError(f"steps={steps} computes its steps from the longest sequence; set max_len or steps=tsm")
        sizes = {"num_heads": spec.num_heads, "index": spec.index, "depth": spec.depth}
        return shift_steps(steps, width, spec.max_len, wrap=self.fill == "circular", **sizes), still  # type: ignore[arg-type]

    def mix(self, v: Tensor, q: Tensor | None = None, k: Tensor | None = None, given: BlockInputs = ALONE) -> Tensor:
        """(B, N, C) -> (B, N, C)."""
        padding = given.padding
        if not self.on_grid:
            lengths = None if padding is None else padding.lengths
            return self._shift_cells(v[:, None], None if padding is None else padding.mask[:, None], lengths)[:, 0]
        first = self.spec.num_prefix
        present = None if padding is None else self.patches.to_grid(padding.mask[:, first:, None])[..., 0]
        shifted = self._shift_cells(self.patches.to_grid(v[:, first:]), present, None)
        return torch.cat([v[:, :first], self.patches.to_tokens(shifted)], dim=1)

    def _shift_cells(self, cells: Tensor, present: Tensor | None, lengths: Tensor | None) -> Tensor:
        """Cells (B, rows, columns, C) -> the same, shifted; only those in `present` (B, rows, columns) are real."""
        batch, height, width, channels = cells.shape
        row = torch.arange(height, device=cells.device)[:, None, None] - self.rows  # (rows, 1, C)
        column = torch.arange(width, device=cells.device)[:, None] - self.steps  # (columns, C)
        inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
        if self.fill == "circular":
            column = column % (width if lengths is None else lengths[:, None, None, None])
            inside = torch.ones_like(inside)
        source = row.clamp(0, height - 1) * width + column.clamp(0, width - 1)
        source = source.expand(batch, height, width, channels).flatten(1, 2)
        shifted = cells.flatten(1, 2).gather(1, source)
        if present is not None:
            reached = present.flatten(1)[:, :, None].expand(-1, -1, channels).gather(1, source)
            inside = inside & torch.unflatten(reached, 1, (height, width))
        otherwise = cells if self.fill == "keep" else torch.zeros((), dtype=cells.dtype, device=cells.device)
        return torch.unflatten(shifted, 1, (height, width)).where(inside, otherwise)
