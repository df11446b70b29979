"""Channel-wise sample permutation: every channel is rolled by its own step, then sorted inside small windows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal

import torch
from torch import Tensor

from sliceformer_lab.attention.base import Attention, LayerSpec
from sliceformer_lab.attention.grid_shift import GridShift
from sliceformer_lab.attention.permutation import BiasFormula, PermutationAttention, Reference
from sliceformer_lab.batch import Padding
from sliceformer_lab.config.option_types import Count, Positive
from sliceformer_lab.permute import shift_sort, shift_sort_index
from sliceformer_lab.permute.schedule import Shift, distances_reached, shift_steps
from sliceformer_lab.runs.plain_text import counted

Order = Literal["ascend", "descend", "random"]


class CSP(PermutationAttention):
    """Each channel of V = x W_V rolled by its own step, then sorted in windows. (B, N, dim) -> (B, N, dim).

    The steps put other tokens into a window in every channel; the sort makes the permutation depend on the data.
    `grid` rolls rows and columns of patches and sorts squares of patches (`GridShift`); the paper has sequences only.
    Raises ValueError for options that exclude each other and for options that need spec.max_len if it is None. With a
    random order, `mix` raises ValueError for more than spec.max_len tokens.
    """

    complexity = "N C log G"
    source = "CSP, section 3.2, equations (3)-(5)"
    deviation = (
        "CSP: steps of shift=linear_window; under padding, tokens are lost and doubled, as csp_published_padding "
        "repeats; odd N fails"
    )
    steps: Tensor | None  # (C,) int64
    directions: Tensor | None  # (K, C) bool, True where a window is sorted downwards

    def __init__(
        self,
        spec: LayerSpec,
        *,
        shift: Shift = "linear_paper",
        shift_window: Count = 2,
        group_size: Count | None = 2,
        grid: bool = False,
        order: Order = "ascend",
        reference: Reference = "none",
        inner_mult: Positive = 1,
        bias_formula: BiasFormula = "mix_plus_sort",
    ) -> None:
        super().__init__(spec, reference=reference, inner_mult=inner_mult, bias_formula=bias_formula)
        if self.reference and order != "ascend":
            raise ValueError(f"order={order} has no effect with reference=channel0, which decides the order")
        self.group_size = group_size
        self.order_sensitive = not (self.reference and self.group_size is None)
        self.descending = order == "descend"
        steps = partial(self._steps, shift, shift_window)
        self.grid = GridShift(spec, steps) if grid else None
        self.mixes_prefix = self.grid is None
        self.register_buffer("steps", None if grid or shift == "none" else steps(spec.max_len), persistent=False)
        self.register_buffer("directions", self._random_directions() if order == "random" else None)

    def _steps(self, shift: Shift, window: int, num_tokens: int | None) -> Tensor:
        if num_tokens is None:
            raise ValueError(f"shift={shift} computes its steps from the longest sequence; set max_len or shift=none")
        spec = self.spec
        steps = shift_steps(
            shift,
            self.width,
            num_tokens,
            num_heads=spec.num_heads,
            index=spec.index,
            depth=spec.depth,
            window=window,
            reference=self.reference,
        )
        return torch.tensor([0, *steps[1:]] if self.reference else steps)

    def _random_directions(self) -> Tensor:
        if self.spec.max_len is None:
            raise ValueError("order=random draws a direction for every window of the longest sequence; set max_len")
        num_windows = 1 if self.group_size is None else -(-self.spec.max_len // self.group_size)
        return torch.rand(num_windows, self.width) < 0.5

    def permute(self, v: Tensor, padding: Padding | None) -> Tensor:
        """(B, N, C) -> (B, N, C)."""
        sort = partial(self._sort, shift_sort)
        if self.grid is not None:
            return self.grid.sorted(v, padding, sort)
        return sort(v, None if padding is None else padding.lengths)

    def source_index(self, v: Tensor, padding: Padding | None) -> Tensor:
        """(B, N, C) -> (B, N, C) int64, -1 on padding."""
        sort = partial(self._sort, shift_sort_index)
        if self.grid is not None:
            return self.grid.source_index(v, padding, sort)
        return sort(v, None if padding is None else padding.lengths)

    def _sort(self, operator: Callable[..., Tensor], v: Tensor, lengths: Tensor | None) -> Tensor:
        return operator(
            v,
            self.steps,
            group_size=self.group_size,
            lengths=lengths,
            descending=self._descending(v.shape[1]),
            reference=self.reference,
        )

    def _descending(self, num_tokens: int) -> bool | Tensor:
        if self.directions is None:
            return self.descending
        if num_tokens > (self.spec.max_len or 0):
            raise ValueError(f"order=random was drawn for max_len={self.spec.max_len} tokens, got {num_tokens}")
        return self.directions[: 1 if self.group_size is None else -(-num_tokens // self.group_size)]


def reach_of_shifts(layers: Sequence[Attention]) -> str | None:
    """How many distances one layer of shifts reaches, and all of them; None unless all layers shift a sequence."""
    shifts = [layer for layer in layers if isinstance(layer, CSP)]
    steps = [layer.steps.tolist() for layer in shifts if layer.steps is not None]
    max_len = layers[0].spec.max_len
    if max_len is None or len(steps) < len(layers):
        return None
    reached = distances_reached(steps, max_len)
    sentence = f"the shifts of one layer reach {reached[0]} of {max_len} distances between tokens"
    if len(layers) > 1:
        sentence += f", those of all {len(layers)} layers {reached[-1]}"
    if reached[-1] == max_len:
        return sentence
    window = shifts[0].group_size
    if window == 1:
        return f"{sentence}: no value can bridge the others; attention.shift=linear_coprime reaches all"
    further = "any number of places" if window is None else f"at most {counted(window - 1, 'place')}"
    found = f"{sentence}; only the sort, which moves a value by {further} in a layer, can bridge the others"
    coprime = [
        shift_steps("linear_coprime", len(own), max_len, index=i, depth=len(layers)) for i, own in enumerate(steps)
    ]
    more = distances_reached(coprime, max_len)[-1]
    return found if more <= reached[-1] else f"{found}; attention.shift=linear_coprime shifts by {more} of them"
