"""Hierarchical shift mixing: three learned numbers weigh a token and its two neighbours at a doubling distance."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sliceformer_lab.attention.base import LayerSpec
from sliceformer_lab.attention.linear_map import LinearMix
from sliceformer_lab.batch import Padding


class HSM(LinearMix):
    """a v_i + b v_{i-s} + c v_{i+s} with s = 2^layer, starting again at 1 behind the longest sequence.

    Outside the real tokens the values are zero. Raises ValueError without spec.max_len.
    """

    complexity = "N C"
    source = "HSM, arXiv 2601.22852"
    deviation = "HSM: causal, without the token after; here both sides, all weights from 1/3"

    def __init__(self, spec: LayerSpec) -> None:
        super().__init__(spec)
        if spec.max_len is None:
            raise ValueError("hsm doubles its step up to the longest sequence, so it needs max_len")
        self.step = 2 ** (spec.index % max(1, math.ceil(math.log2(spec.max_len))))
        self.weights = nn.Parameter(torch.full((3,), 1 / 3))  # of the token, the one before and the one after

    def mix(
        self,
        v: Tensor,
        q: Tensor | None = None,
        k: Tensor | None = None,
        *,
        padding: Padding | None = None,
        bias: Tensor | None = None,
    ) -> Tensor:
        """(B, N, C) -> (B, N, C)."""
        del q, k, bias
        if padding is not None:
            v = v.masked_fill(~padding.mask[:, :, None], 0)
        own, before, after = self.weights.to(v.dtype)
        wide = F.pad(v, (0, 0, self.step, self.step))
        return own * v + before * wide[:, : v.shape[1]] + after * wide[:, 2 * self.step :]
