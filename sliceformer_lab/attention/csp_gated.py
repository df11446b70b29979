"""CSP with a learned gate between the shifted and the sorted values: does a channel want the sort?"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor, nn

from sliceformer_lab.attention.base import ALONE, Attention, BlockInputs, LayerSpec
from sliceformer_lab.attention.csp import CSP
from sliceformer_lab.config.option_types import Count
from sliceformer_lab.permute.schedule import Shift


class CSPGated(Attention):
    """g S(v) + (1 - g) R(v) in each channel: R rolls the values, S also sorts them. (B, N, dim) -> (B, N, dim).

    g = sigmoid of one learned number a channel. 1 is CSP, 0 a shift. Raises ValueError as CSP does.
    """

    maps_channels = True
    complexity = "N C log G"
    source = "ours"

    def __init__(
        self,
        spec: LayerSpec,
        *,
        shift: Shift = "linear_paper",
        group_size: Count | None = 2,
        gate_start: Annotated[float, Field(gt=0, lt=1)] = 0.5,
    ) -> None:
        super().__init__(spec)
        alone = replace(spec, project=False)
        self.rolled = CSP(alone, shift=shift, group_size=1)
        self.sorted = CSP(alone, shift=shift, group_size=group_size)
        self.gate = nn.Parameter(torch.full((self.width,), gate_start).logit())

    def mix(self, v: Tensor, q: Tensor | None = None, k: Tensor | None = None, given: BlockInputs = ALONE) -> Tensor:
        gate = self.gate.sigmoid().to(v.dtype)
        return torch.lerp(self.rolled.permute(v, given.padding), self.sorted.permute(v, given.padding), gate)

    def maps(self, v: Tensor, q: Tensor | None = None, k: Tensor | None = None, given: BlockInputs = ALONE) -> Tensor:
        """One matrix per channel, (B, C, N, N): a mean of two permutations with the weights of the gate."""
        unbiased = given._replace(bias=None)
        rolled, ordered = self.rolled.maps(v, given=unbiased), self.sorted.maps(v, given=unbiased)
        return torch.lerp(rolled, ordered, self.gate.sigmoid()[:, None, None])
