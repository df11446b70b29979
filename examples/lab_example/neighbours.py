"""An attention that averages neighbouring tokens."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional

from sliceformer_lab.attention.base import ALONE, Attention, BlockInputs, LayerSpec
from sliceformer_lab.config.option_types import Count


class Neighbours(Attention):
    """Gives every token the mean of the real tokens at most `radius` places away, itself included."""

    complexity = "N C radius"
    source = "example"

    def __init__(self, spec: LayerSpec, *, radius: Count = 2) -> None:
        super().__init__(spec)
        self.radius = radius

    def mix(self, v: Tensor, q: Tensor | None = None, k: Tensor | None = None, given: BlockInputs = ALONE) -> Tensor:
        """(B, N, C) -> (B, N, C)."""
        real = v.new_ones(1, v.shape[1], 1) if given.padding is None else given.padding.mask[:, :, None].to(v.dtype)
        v = given.zero_padding(v)
        return self._average(v) / self._average(real).clamp_min(0.5 / (2 * self.radius + 1))

    def _average(self, x: Tensor) -> Tensor:
        """The sum over each window, divided by the window's length. (B, N, C) -> (B, N, C)."""
        return functional.avg_pool1d(x.mT, 2 * self.radius + 1, stride=1, padding=self.radius).mT
