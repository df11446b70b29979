"""Hierarchical shift mixing: three learned numbers weigh a token and its two neighbours at a doubling distance."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sliceformer_lab.attention.base import ALONE, Attention, BlockInputs, LayerSpec


class HSM(Attention):
    """a v_i + b v_{i-s} + c v_{i+s} with s = 2^layer, starting again at 1 behind the longest sequence.

    Outside the real tokens the values are zero. A causal layer reads no token after, as published. Raises
    ValueError without spec.max_len.
    """

    maps_channels = True
    accepts_causal = True
    complexity = "N C"
    source = "HSM, arXiv 2601.22852"
    deviation = (
        "HSM: causal, without the token after; here both sides in a layer that is not, and equal weights at first"
    )

    def __init__(self, spec: LayerSpec) -> None:
        super().__init__(spec)
        self.step = 2 ** (spec.index % max(1, math.ceil(math.log2(self.max_len))))
        number = 2 if spec.causal else 3  # the token, the one before, and the one after
        self.weights = nn.Parameter(torch.full((number,), 1 / number))

    def mix(self, v: Tensor, q: Tensor | None = None, k: Tensor | None = None, given: BlockInputs = ALONE) -> Tensor:
        """(B, N, C) -> (B, N, C)."""
        v = given.zero_padding(v)
        own, before, *after = self.weights.to(v.dtype)
        wide = F.pad(v, (0, 0, self.step, self.step))
        mixed = own * v + before * wide[:, : v.shape[1]]
        return mixed + after[0] * wide[:, 2 * self.step :] if after else mixed
