"""Attentions that also read the tokens as they enter the block, before its norm."""

from __future__ import annotations

from abc import abstractmethod

from torch import Tensor

from sliceformer_lab.attention.base import Attention
from sliceformer_lab.batch import Padding


class BlockInputAttention(Attention):
    """An attention with a second input, the tokens before the block's norm. (B, N, dim) -> (B, N, dim)."""

    @abstractmethod
    def forward(
        self,
        x: Tensor,
        padding: Padding | None = None,
        bias: Tensor | None = None,
        block_input: Tensor | None = None,
    ) -> Tensor:
        """(B, N, dim) -> (B, N, dim); without `block_input`, x takes its place."""
