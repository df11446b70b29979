"""Channel-wise sample permutation: every channel is rolled by its own step, then sorted inside small windows."""

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
from sliceformer_lab.permute.schedule import Shift, shift_steps

Order = Literal["ascend", "descend", "random"]
GROUP_SIZE = 2  # that of every published setting but the complete sort


class CSP(PermutationAttention):
    """Each channel of V = x W_V rolled by its own step, then sorted in windows. (B, N, dim) -> (B, N, dim).

    The steps let a window meet other tokens in every channel; the sort makes the permutation depend on the data.
    Raises ValueError for options that exclude each other or that need spec.max_len where it is None; `mix` raises it
    for samples of a length that `groups` or a random order cannot take.
    Source: CSP, section 3.2 and equations (3) to (5).
    """

    complexity = "N C log G"
    source = "CSP, section 3.2, equations (3)-(5)"
    deviation = "CSP: under padding, tokens are lost and doubled, as padding=published repeats; odd N fails"
    steps: Tensor | None  # (C,) int64
    directions: Tensor | None  # (K, C) bool, True where a window is sorted downwards

    def __init__(
        self,
        spec: LayerSpec,
        *,
        shift: Shift = "linear_paper",
        shift_window: Annotated[int, Field(ge=1)] = 2,
        group_size: Annotated[int, Field(ge=1)] | None = GROUP_SIZE,
        groups: Annotated[int, Field(ge=1)] | None = None,
        order: Order = "ascend",
        reference: Reference = "none",
        inner_mult: Annotated[float, Field(gt=0)] = 1,
        bias_formula: BiasFormula = "mix_plus_sort",
        padding: PaddingRule = "exact",
    ) -> None:
        super().__init__(spec, reference=reference, inner_mult=inner_mult, bias_formula=bias_formula, padding=padding)
        if self.reference and order != "ascend":
            raise ValueError(f"order={order} has no meaning beside reference=channel0, which decides the order")
        if self.reference and self.published:
            raise ValueError("padding=published exists for reference=none only; set one of the two to its default")
        self.group_size = group_size if groups is None else _group_size(groups, group_size, spec.max_len)
        self.fixed_length = groups is not None
        self.order_sensitive = not (self.reference and self.group_size is None)
        self.descending = order == "descend"
        self.register_buffer("steps", self._steps(shift, shift_window), persistent=False)
        self.register_buffer("directions", self._random_directions() if order == "random" else None)

    def _steps(self, shift: Shift, window: int) -> Tensor | None:
        spec = self.spec
        if shift == "none":
            return None
        if spec.max_len is None:
            raise ValueError(f"shift={shift} takes its steps from the longest sequence; set max_len or shift=none")
        steps = shift_steps(
            shift,
            self.width,
            spec.max_len,
            num_heads=spec.num_heads,
            index=spec.index,
            depth=spec.depth,
            window=window,
            reference=self.reference,
        )
        return torch.tensor(steps)

    def _random_directions(self) -> Tensor:
        if self.spec.max_len is None:
            raise ValueError("order=random draws a direction for every window of the longest sequence; set max_len")
        num_windows = 1 if self.group_size is None else -(-self.spec.max_len // self.group_size)
        return torch.rand(num_windows, self.width) < 0.5

    def permute(self, v: Tensor, padding: Padding | None) -> Tensor:
        """(B, N, C) -> (B, N, C)."""
        if padding is None or not self.published:
            return self._run(shift_sort, v, padding)
        permuted = v.gather(1, self._published_index(v, padding))
        return torch.where(padding.mask[..., None], permuted, v[~padding.mask][0, 0])

    def source_index(self, v: Tensor, padding: Padding | None) -> Tensor:
        """(B, N, C) -> (B, N, C) int64, -1 on padding."""
        if padding is None or not self.published:
            return self._run(shift_sort_index, v, padding)
        return self._published_index(v, padding).masked_fill(~padding.mask[..., None], -1)

    def _run(self, operator: Callable[..., Tensor], v: Tensor, padding: Padding | None) -> Tensor:
        self._check_length(v.shape[1], padding)
        return operator(
            v,
            self.steps,
            group_size=self.group_size,
            lengths=None if padding is None else padding.lengths,
            descending=self._descending(v.shape[1]),
            reference=self.reference,
        )

    def _descending(self, num_tokens: int) -> bool | Tensor:
        if self.directions is None:
            return self.descending
        return self.directions[: 1 if self.group_size is None else -(-num_tokens // self.group_size)]

    def _check_length(self, num_tokens: int, padding: Padding | None) -> None:
        if self.fixed_length and (padding is not None or num_tokens != self.spec.max_len):
            raise ValueError(
                f"groups counts the windows of exactly max_len={self.spec.max_len} tokens, but a sample is shorter "
                "or longer; set group_size instead"
            )
        if self.directions is not None and num_tokens > (self.spec.max_len or 0):
            raise ValueError(f"order=random was drawn for max_len={self.spec.max_len} tokens, got {num_tokens}")

    def _published_index(self, v: Tensor, padding: Padding) -> Tensor:
        """The published rule (B, N, C): steps modulo N, then modulo n, so that tokens are lost and doubled."""
        slots = torch.arange(v.shape[1], device=v.device)[:, None]
        steps = 0 if self.steps is None else self.steps
        shifted = ((slots - steps) % v.shape[1] % padding.lengths[:, None, None]).expand(v.shape)
        order = shift_sort_index(
            v.gather(1, shifted), None, group_size=self.group_size, descending=self._descending(v.shape[1])
        )
        return shifted.gather(1, order)


def _group_size(groups: int, group_size: int | None, max_len: int | None) -> int | None:
    if group_size != GROUP_SIZE:
        raise ValueError(f"groups={groups} and group_size={group_size} are two ways to say one thing; keep one")
    if max_len is None:
        raise ValueError(f"groups={groups} divides the longest sequence; set max_len or use group_size")
    if max_len % groups:
        raise ValueError(f"groups={groups} does not divide max_len={max_len}; choose a divisor or set group_size")
    return None if groups == 1 else max_len // groups
