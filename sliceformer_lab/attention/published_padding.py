"""CSP and Sliceformer with the handling of padding of the published codes, in which real tokens depend on padding.

For comparison with published numbers only. Padded rows take part in the permutation, so these attentions break the
padding rule of `Attention`. The encoder keeps padded rows alive for them and does not zero them between blocks, since
the published values of the real tokens depend on these rows.
"""

from __future__ import annotations

import torch
from torch import Tensor

from sliceformer_lab.attention.base import LayerSpec
from sliceformer_lab.attention.csp import CSP, Order
from sliceformer_lab.attention.permutation import BiasFormula
from sliceformer_lab.attention.sliceformer import Sliceformer
from sliceformer_lab.batch import Padding, fill_padding
from sliceformer_lab.config.option_types import Count, Positive
from sliceformer_lab.permute import shift_sort_index
from sliceformer_lab.permute.schedule import Shift


class CSPPublishedPadding(CSP):
    """CSP with steps modulo N and then modulo n, so that padded samples lose some tokens and repeat others.

    (B, N, dim) -> (B, N, dim).
    """

    deviation = ""
    reads_padding = True

    def __init__(
        self,
        spec: LayerSpec,
        *,
        shift: Shift = "linear_paper",
        shift_window: Count = 2,
        group_size: Count | None = 2,
        order: Order = "ascend",
        inner_mult: Positive = 1,
        bias_formula: BiasFormula = "mix_plus_sort",
    ) -> None:
        super().__init__(
            spec,
            shift=shift,
            shift_window=shift_window,
            group_size=group_size,
            order=order,
            inner_mult=inner_mult,
            bias_formula=bias_formula,
        )

    def permute(self, v: Tensor, padding: Padding | None) -> Tensor:
        """(B, N, C) -> (B, N, C)."""
        if padding is None:
            return super().permute(v, padding)
        permuted, padded = v.gather(1, self._find_sources(v, padding)), v[~padding.mask]
        return torch.where(padding.mask[..., None], permuted, padded[0, 0]) if len(padded) else permuted

    def source_index(self, v: Tensor, padding: Padding | None) -> Tensor:
        """(B, N, C) -> (B, N, C) int64, -1 on padding."""
        if padding is None:
            return super().source_index(v, padding)
        return fill_padding(self._find_sources(v, padding), padding, -1)

    def _find_sources(self, v: Tensor, padding: Padding) -> Tensor:
        """The published rule: (B, N, C) -> (B, N, C) int64."""
        slots = torch.arange(v.shape[1], device=v.device)[:, None]
        steps = 0 if self.steps is None else self.steps
        shifted = ((slots - steps) % v.shape[1] % padding.lengths[:, None, None]).expand(v.shape)
        order = shift_sort_index(
            v.gather(1, shifted), None, group_size=self.group_size, descending=self._descending(v.shape[1])
        )
        return shifted.gather(1, order)


class SliceformerPublishedPadding(Sliceformer):
    """Sliceformer that sorts padded tokens with the real ones. (B, N, dim) -> (B, N, dim)."""

    deviation = ""
    reads_padding = True

    def permute(self, v: Tensor, padding: Padding | None) -> Tensor:
        """(B, N, C) -> (B, N, C)."""
        permuted = super().permute(v, None)
        if padding is None or self.order != "max_exchange":
            return permuted
        return fill_padding(permuted, padding)

    def source_index(self, v: Tensor, padding: Padding | None) -> Tensor:
        """(B, N, C) -> (B, N, C) int64, -1 on padding under max_exchange."""
        source = super().source_index(v, None)
        if padding is None or self.order != "max_exchange":
            return source
        return fill_padding(source, padding, -1)
