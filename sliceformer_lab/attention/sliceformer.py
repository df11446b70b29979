"""Sliceformer: every channel sorted over all tokens, in place of attention."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from sliceformer_lab.attention.base import LayerSpec
from sliceformer_lab.attention.permutation import BiasFormula, PaddingRule, PermutationAttention, Reference
from sliceformer_lab.batch import Padding
from sliceformer_lab.permute import shift_sort, shift_sort_index
from sliceformer_lab.permute.schedule import InterleaveRule, interleave_columns

Order = Literal["ascend", "descend", "interleave", "max_exchange"]


class Sliceformer(PermutationAttention):
    """Each channel of V = x W_V sorted over the tokens, CLS included. (B, N, dim) -> (B, N, dim).

    `interleave` sorts some channels downwards, in a pattern that changes by layer; `max_exchange` only swaps each
    channel's maximum with token 0.
    Raises ValueError for reference=channel0 beside another order than ascend.
    Source: Sliceformer, equation (4) and section 3.
    """

    complexity = "N C log N"
    source = "Sliceformer, equation (4)"
    deviation = "LRA and PCQM4M: padding is sorted with the tokens, as padding=published repeats"
    columns: Tensor | None  # (C,) bool, True where a channel is sorted downwards

    def __init__(
        self,
        spec: LayerSpec,
        *,
        order: Order = "ascend",
        interleave_rule: InterleaveRule = "block",
        interleave_scope: Literal["head", "full"] = "head",
        layer_order: Literal["high_first", "low_first"] = "high_first",
        reference: Reference = "none",
        inner_mult: Annotated[int, Field(ge=1)] = 1,
        bias_formula: BiasFormula = "mix_plus_sort",
        padding: PaddingRule = "exact",
    ) -> None:
        super().__init__(spec, reference=reference, inner_mult=inner_mult, bias_formula=bias_formula, padding=padding)
        if self.reference and order != "ascend":
            raise ValueError(f"order={order} has no meaning beside reference=channel0, which decides the order")
        self.order = order
        self.order_sensitive = not self.reference
        columns = None
        if order == "interleave":
            period = self.head_dim if interleave_scope == "head" else self.width
            doublings = spec.depth - 1 - spec.index if layer_order == "high_first" else spec.index
            columns = torch.tensor(interleave_columns(interleave_rule, period, doublings) * (self.width // period))
        self.register_buffer("columns", columns, persistent=False)

    def permute(self, v: Tensor, padding: Padding | None) -> Tensor:
        """(B, N, C) -> (B, N, C)."""
        if self.order != "max_exchange":
            return self._sort(shift_sort, v, padding)
        permuted = v.gather(1, _exchange_index(v, None if self.published else padding))
        return permuted if padding is None else permuted.masked_fill(~padding.mask[..., None], 0.0)

    def source_index(self, v: Tensor, padding: Padding | None) -> Tensor:
        """(B, N, C) -> (B, N, C) int64, -1 on padding."""
        if self.order != "max_exchange":
            return self._sort(shift_sort_index, v, padding)
        source = _exchange_index(v, None if self.published else padding)
        return source if padding is None else source.masked_fill(~padding.mask[..., None], -1)

    def _sort(self, operator: Callable[..., Tensor], v: Tensor, padding: Padding | None) -> Tensor:
        return operator(
            v,
            None,
            group_size=None,
            lengths=None if padding is None or self.published else padding.lengths,  # published: padding takes part
            descending=self.order == "descend" if self.columns is None else self.columns,
            reference=self.reference,
        )


def _exchange_index(v: Tensor, padding: Padding | None) -> Tensor:
    """Source of every slot where each channel's maximum over real tokens trades places with token 0: (B, N, C)."""
    seen = v.detach() if padding is None else v.detach().masked_fill(~padding.mask[..., None], float("-inf"))
    top = seen.argmax(dim=1, keepdim=True)
    index = torch.arange(v.shape[1], device=v.device)[:, None].expand(v.shape).scatter(1, top, 0)
    return torch.cat([top, index[:, 1:]], dim=1)
