"""Control: no mixing at all."""

from __future__ import annotations

from torch import Tensor

from sliceformer_lab.attention.linear_map import LinearMix
from sliceformer_lab.batch import Padding


class Identity(LinearMix):
    """Every token keeps its own values; what a model still learns, it learns without mixing tokens."""

    order_sensitive = False
    complexity = "0"
    source = "control"

    def mix(
        self,
        v: Tensor,
        q: Tensor | None = None,
        k: Tensor | None = None,
        *,
        padding: Padding | None = None,
        bias: Tensor | None = None,
    ) -> Tensor:
        """(B, N, C) -> the same (B, N, C)."""
        del q, k, padding, bias
        return v
