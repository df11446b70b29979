"""Control: every token receives the mean."""

from __future__ import annotations

from torch import Tensor

from sliceformer_lab.attention.base import ALONE, Attention, BlockInputs


class Mean(Attention):
    """Every token receives the mean of the real tokens' values: mixing of rank one."""

    maps_channels = True
    order_sensitive = False
    complexity = "N C"
    source = "control"

    def mix(self, v: Tensor, q: Tensor | None = None, k: Tensor | None = None, given: BlockInputs = ALONE) -> Tensor:
        """(B, N, C) -> (B, N, C), the same for all tokens of a sample."""
        if given.padding is None:
            return v.mean(dim=1, keepdim=True).expand_as(v)
        total = given.zero_padding(v).sum(dim=1, keepdim=True)
        return (total / given.padding.lengths[:, None, None]).expand_as(v)
