"""Attentions that hand a state from layer to layer."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar

from torch import Tensor, nn

from sliceformer_lab.attention.base import Attention
from sliceformer_lab.batch import Padding


class StatefulAttention(Attention):
    """An attention that reads a state beside the tokens and returns the next one. (B, N, dim) -> (B, N, dim).

    `forward` is one step from the initial state; inside `carried_state` it is one from the state that the layer before
    left, so that blocks need not know of it.
    """

    mixable: ClassVar[bool] = False  # a block that projects by itself would not carry the state
    _carry: _Carry | None = None

    @abstractmethod
    def init_state(self, batch_size: int) -> Tensor:
        """The state before the first layer: (B, S, width)."""

    @abstractmethod
    def step(
        self, x: Tensor, state: Tensor, padding: Padding | None = None, bias: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Tokens (B, N, dim) and state (B, S, width) -> tokens (B, N, dim) and the next state (B, S, width)."""

    def forward(self, x: Tensor, padding: Padding | None = None, bias: Tensor | None = None) -> Tensor:
        """(B, N, dim) -> (B, N, dim)."""
        carry = _Carry() if self._carry is None else self._carry
        state = self.init_state(len(x)) if carry.state is None else carry.state
        y, carry.state = self.step(x, state, padding, bias)
        return y


class _Carry:
    """The state on its way through the layers."""

    state: Tensor | None = None


@contextmanager
def carried_state(layers: nn.Module) -> Iterator[None]:
    """For one pass through `layers`, whose stateful attentions start from the state that the one before left."""
    attentions = [module for module in layers.modules() if isinstance(module, StatefulAttention)]
    carry = _Carry()
    for attention in attentions:
        attention._carry = carry
    try:
        yield
    finally:
        for attention in attentions:
            attention._carry = None
