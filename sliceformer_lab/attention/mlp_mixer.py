"""MLP-Mixer: a small network along the tokens, the same for all channels."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from sliceformer_lab.attention.base import ALONE, Attention, BlockInputs, LayerSpec
from sliceformer_lab.config.option_types import Count


class MLPMixer(Attention):
    """W2 gelu(W1 v + b1) + b2 along the tokens of each channel. (B, N, dim) -> (B, N, dim).

    n tokens use the first n columns of W1 and rows of W2. Raises ValueError without spec.max_len.
    """

    complexity = "N M C"
    source = "MLP-Mixer, arXiv 2105.01601, equation (1)"

    def __init__(self, spec: LayerSpec, *, hidden: Count = 256) -> None:
        super().__init__(spec)
        self.inner, self.outer = nn.Linear(self.max_len, hidden), nn.Linear(hidden, self.max_len)
        for linear in (self.inner, self.outer):
            nn.init.normal_(linear.weight, std=linear.in_features**-0.5)
            nn.init.zeros_(linear.bias)

    def mix(self, v: Tensor, q: Tensor | None = None, k: Tensor | None = None, given: BlockInputs = ALONE) -> Tensor:
        """(B, N, C) -> (B, N, C). Raises ValueError for N > max_len."""
        num_tokens = v.shape[1]
        self.refuse_longer(num_tokens)
        v = given.zero_padding(v)
        hidden = F.gelu(F.linear(v.mT, self.inner.weight[:, :num_tokens], self.inner.bias), approximate="tanh")
        return F.linear(hidden, self.outer.weight[:num_tokens], self.outer.bias[:num_tokens]).mT
