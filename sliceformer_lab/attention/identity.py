"""Control: no mixing."""

from __future__ import annotations

from torch import Tensor

from sliceformer_lab.attention.base import ALONE, BlockInputs
from sliceformer_lab.attention.linear_map import LinearMix


class Identity(LinearMix):
    """Every token keeps its own values, so the model learns without any mixing of tokens."""

    accepts_causal = True
    order_sensitive = False
    complexity = "0"
    source = "control"

    def mix(self, v: Tensor, q: Tensor | None = None, k: Tensor | None = None, given: BlockInputs = ALONE) -> Tensor:
        """(B, N, C) -> (B, N, C), unchanged."""
        return v
