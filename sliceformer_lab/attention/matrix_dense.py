"""A learned matrix of tokens in each head: no content, no structure."""

from __future__ import annotations

from math import sqrt

import torch
from torch import Tensor, nn

from sliceformer_lab.attention.base import ALONE, Attention, BlockInputs, LayerSpec


class MatrixDense(Attention):
    """v + M v / sqrt(L) with a learned matrix M of L = max_len rows in each head. (B, N, dim) -> (B, N, dim).

    n tokens use the first n rows and columns. Raises ValueError without spec.max_len.
    """

    maps_channels = True
    complexity = "N^2 C"
    source = "Hydra, arXiv 2407.09941, section 3"

    def __init__(self, spec: LayerSpec) -> None:
        super().__init__(spec)
        self.weight = nn.Parameter(nn.init.xavier_normal_(torch.empty(spec.num_heads, self.max_len, self.max_len)))

    def mix(self, v: Tensor, q: Tensor | None = None, k: Tensor | None = None, given: BlockInputs = ALONE) -> Tensor:
        """(B, N, C) -> (B, N, C). Raises ValueError for N > max_len."""
        n = v.shape[1]
        self.refuse_longer(n)
        v = given.zero_padding(v)
        moved = self.weight[:, :n, :n].to(v.dtype) @ self.split_heads(v)
        return v + self.merge_heads(moved) / sqrt(self.max_len)
