"""Hidden tokens: those whose content a model has to fill in."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Hidden:
    """Which units of a batch (patches, symbols, nodes, points) are hidden, and a learned vector that marks them."""

    mask: Tensor  # (B, N) bool, True on hidden units
    vector: Tensor  # (C,) learned

    def cover(self, tokens: Tensor) -> Tensor:
        """The tokens (B, N, C) of the units, with the vector in place of the hidden ones."""
        return torch.where(self.mask[..., None], self.vector.to(tokens.dtype), tokens)

    def mark(self, tokens: Tensor) -> Tensor:
        """The tokens (B, N, C) of the units, with the vector added to the hidden ones."""
        return torch.where(self.mask[..., None], tokens + self.vector.to(tokens.dtype), tokens)
