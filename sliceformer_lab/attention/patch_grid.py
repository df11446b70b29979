"""The patches of an image in rows and columns, whatever the order of the sequence."""

from __future__ import annotations

import torch
from torch import Tensor

from sliceformer_lab.attention.base import ComputedBuffers, LayerSpec


class PatchGrid(ComputedBuffers):
    """Puts tokens into rows and columns, and back; without a grid a sequence is one row."""

    order: Tensor | None  # (N,) the patch, counted row by row, of each token
    places: Tensor | None  # (N,) the token of each patch

    def __init__(self, spec: LayerSpec) -> None:
        super().__init__()
        self.size = spec.grid
        self.num_prefix = spec.num_prefix if spec.grid else 0  # tokens that have no place; a sequence begins with them
        order = None if spec.token_order is None else torch.tensor(spec.token_order)
        self.register_buffer("order", order, persistent=False)
        self.register_buffer("places", None if order is None else order.argsort(), persistent=False)

    def to_grid(self, x: Tensor) -> Tensor:
        """Tokens without prefix (B, N, C) -> (B, rows, columns, C)."""
        if self.places is not None:
            x = x[:, self.places]
        return torch.unflatten(x, 1, self.size or (1, x.shape[1]))

    def to_tokens(self, cells: Tensor) -> Tensor:
        """(B, rows, columns, C) -> (B, N, C)."""
        x = cells.flatten(1, 2)
        return x if self.order is None else x[:, self.order]
