"""Control: no mixing."""

from __future__ import annotations

from torch import Tensor

from sliceformer_lab.attention.linear_map import LinearMix
from sliceformer_lab.batch import Padding


class Identity(LinearMix):
    """Every token keeps its own values, so the model learns without any mixing of tokens."""

    accepts_causal = True
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
        """(B, N, C) -> (B, N, C), unchanged."""
        del q, k, padding, bias
        return v
