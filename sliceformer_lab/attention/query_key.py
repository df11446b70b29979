"""The base class of attentions that mix values with weights computed from queries and keys."""

from __future__ import annotations

from abc import abstractmethod

from torch import Tensor, nn

from sliceformer_lab.attention.base import ALONE, Attention, BlockInputs
from sliceformer_lab.batch import Padding


class QueryKeyAttention(Attention):
    """An attention that mixes the values of each head with weights computed from queries and keys.

    A subclass implements `attend`, and sets `maps_heads` to False if that is not linear in the values.
    """

    query: nn.Module
    key: nn.Module

    needs_qk = True
    maps_heads = True

    @abstractmethod
    def attend(self, v: Tensor, q: Tensor, k: Tensor, padding: Padding | None, dropout: float) -> Tensor:
        """Values (B, H, N, E), queries and keys (B, H, N, D) -> (B, H, N, E), with `dropout` on the weights."""

    def mix(self, v: Tensor, q: Tensor | None = None, k: Tensor | None = None, given: BlockInputs = ALONE) -> Tensor:
        """(B, N, H*D) values, queries and keys -> (B, N, H*D). Raises ValueError without q or k."""
        q, k = self.queries_and_keys(q, k)
        dropout = self.spec.attention_dropout if self.training else 0.0
        v, q, k = self.split_heads(v), self.split_heads(q), self.split_heads(k)
        return self.merge_heads(self.attend(v, q, k, given.padding, dropout))

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Values, queries and keys (B, N, H*D); queries and keys rotated under rope."""
        return self.value(x), self.rotated(self.query(x)), self.rotated(self.key(x))
