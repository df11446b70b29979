"""The base class of attentions that mix values with weights computed from queries and keys."""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor, nn

from sliceformer_lab.attention.base import Attention
from sliceformer_lab.attention.layer_state import ALONE, BlockInputs
from sliceformer_lab.batch import Padding


class QueryKeyAttention(Attention):
    """An attention whose heads are linear in their values, with weights computed from queries and keys.

    A subclass implements `attend`. The implied map is `attend` applied to one-hot values.
    """

    query: nn.Module
    key: nn.Module

    needs_qk = True

    @abstractmethod
    def attend(self, v: Tensor, q: Tensor, k: Tensor, padding: Padding | None, dropout: float) -> Tensor:
        """Values (B, H, N, E), queries and keys (B, H, N, D) -> (B, H, N, E), with `dropout` on the weights."""

    def mix(self, v: Tensor, q: Tensor | None = None, k: Tensor | None = None, given: BlockInputs = ALONE) -> Tensor:
        """(B, N, H*D) values, queries and keys -> (B, N, H*D). Raises ValueError without q or k."""
        q, k = self.queries_and_keys(q, k)
        dropout = self.spec.attention_dropout if self.training else 0.0
        v, q, k = self.split_heads(v), self.split_heads(q), self.split_heads(k)
        return self.merge_heads(self.attend(v, q, k, given.padding, dropout))

    def implied_map(self, x: Tensor, padding: Padding | None = None, bias: Tensor | None = None) -> Tensor | None:
        """The weights (B, H, N, N), without dropout."""
        _, q, k = self.project(x)
        unit = torch.eye(x.shape[1], dtype=x.dtype, device=x.device)
        unit = unit.expand(x.shape[0], self.spec.num_heads, -1, -1)
        return self.attend(unit, self.split_heads(q), self.split_heads(k), padding, 0.0)

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Values, queries and keys (B, N, H*D); queries and keys rotated under rope."""
        return self.value(x), self.rotated(self.query(x)), self.rotated(self.key(x))
