"""Control: no mixing."""

from __future__ import annotations

from torch import Tensor

from sliceformer_lab.attention.base import ALONE, Attention, BlockInputs


class Identity(Attention):
    """Every token keeps its own values, so the model learns without any mixing of tokens."""

    maps_channels = True
    accepts_causal = True
    order_sensitive = False
    mixes_prefix = False
    complexity = "0"
    source = "control"

    def mix(self, v: Tensor, q: Tensor | None = None, k: Tensor | None = None, given: BlockInputs = ALONE) -> Tensor:
        """(B, N, C) -> (B, N, C), unchanged."""
        return v
