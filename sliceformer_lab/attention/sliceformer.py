"""Sliceformer: each channel is sorted over all tokens."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cache
from typing import Literal

import torch
from torch import Tensor

from sliceformer_lab.attention.base import LayerSpec
from sliceformer_lab.attention.permutation import BiasFormula, PermutationAttention, Reference
from sliceformer_lab.batch import Padding, fill_padding
from sliceformer_lab.config.option_types import Positive
from sliceformer_lab.permute import shift_sort, shift_sort_index
from sliceformer_lab.permute.schedule import InterleaveRule, interleave_columns

log = logging.getLogger(__name__)

Order = Literal["ascend", "descend", "interleave", "max_exchange"]


class Sliceformer(PermutationAttention):
    """Each channel of V = x W_V sorted over the tokens, CLS included. (B, N, dim) -> (B, N, dim).

    `interleave` sorts some channels downwards, in a pattern that changes by layer (equations 5 and 6; the published
    code has another rule, `interleave_rule=block interleave_scope=head`). `max_exchange` only swaps each channel's
    maximum with token 0. Raises ValueError for reference=channel0 with another order than ascend.
    """

    complexity = "N C log N"
    source = "Sliceformer, equation (4) and section 3"
    deviation = "LRA and PCQM4M: padding is sorted with the tokens, as sliceformer_published_padding repeats"
    columns: Tensor | None  # (C,) bool, True where a channel is sorted downwards

    def __init__(
        self,
        spec: LayerSpec,
        *,
        order: Order = "ascend",
        interleave_rule: InterleaveRule = "sine_exact",
        interleave_scope: Literal["full", "head"] = "full",
        layer_order: Literal["high_first", "low_first"] = "high_first",
        reference: Reference = "none",
        inner_mult: Positive = 1,
        bias_formula: BiasFormula = "mix_plus_sort",
    ) -> None:
        super().__init__(spec, reference=reference, inner_mult=inner_mult, bias_formula=bias_formula)
        if self.reference and order != "ascend":
            raise ValueError(f"order={order} has no effect with reference=channel0, which decides the order")
        self.order = order
        self.order_sensitive = not self.reference
        columns = None
        if order == "interleave":
            period = self.head_dim if interleave_scope == "head" else self.width
            doublings = spec.depth - 1 - spec.index if layer_order == "high_first" else spec.index
            _warn_of_plain_layers(interleave_rule, period, spec.depth)
            columns = torch.tensor(interleave_columns(interleave_rule, period, doublings) * (self.width // period))
        self.register_buffer("columns", columns, persistent=False)

    def permute(self, v: Tensor, padding: Padding | None) -> Tensor:
        """(B, N, C) -> (B, N, C)."""
        if self.order != "max_exchange":
            return self._sort(shift_sort, v, padding)
        return fill_padding(_swap_with_first(v, self._find_largest(v, padding)), padding)

    def source_index(self, v: Tensor, padding: Padding | None) -> Tensor:
        """(B, N, C) -> (B, N, C) int64, -1 on padding."""
        if self.order != "max_exchange":
            return self._sort(shift_sort_index, v, padding)
        slots = torch.arange(v.shape[1], device=v.device)[:, None].expand(v.shape)
        return fill_padding(_swap_with_first(slots, self._find_largest(v, padding)), padding, -1)

    def _find_largest(self, v: Tensor, padding: Padding | None) -> Tensor:
        """The first real token with each channel's maximum: (B, N, C) -> (B, 1, C)."""
        seen = fill_padding(v.detach(), padding, -torch.inf)
        return seen.max(dim=1, keepdim=True).indices  # several times faster than argmax

    def _sort(self, operator: Callable[..., Tensor], v: Tensor, padding: Padding | None) -> Tensor:
        return operator(
            v,
            None,
            group_size=None,
            lengths=None if padding is None else padding.lengths,
            descending=self.order == "descend" if self.columns is None else self.columns,
            reference=self.reference,
        )


@cache  # once for all layers of a model
def _warn_of_plain_layers(rule: InterleaveRule, num_columns: int, depth: int) -> None:
    """Warns of layers that sort every column upwards although they are not the one that is meant to."""
    plain = sum(not any(interleave_columns(rule, num_columns, doublings)) for doublings in range(1, depth))
    if plain:
        log.warning(
            f"WARNING: attention.order=interleave sorts nothing downwards in {plain + 1} of {depth} layers, because "
            f"2^layers passes {num_columns} columns; the published code alternates in all but one: "
            "attention.interleave_rule=block attention.interleave_scope=head"
        )


def _swap_with_first(x: Tensor, place: Tensor) -> Tensor:
    """Swaps token 0 and the token at each channel's `place` (B, 1, C). (B, N, C) -> (B, N, C)."""
    moved = x.clone(memory_format=torch.contiguous_format)
    moved.scatter_(1, place, x[:, :1])
    moved[:, :1] = x.gather(1, place)
    return moved
