"""CSP that looks back only: channels shifted without the wrap-around, then sorted in windows of earlier tokens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from sliceformer_lab.attention.base import ALONE, BlockInputs, LayerSpec
from sliceformer_lab.attention.permutation import PermutationAttention
from sliceformer_lab.batch import Padding, fill_padding
from sliceformer_lab.config.option_types import Count, Positive
from sliceformer_lab.permute import shift_sort, shift_sort_index
from sliceformer_lab.permute.schedule import shift_steps


class CSPCausal(PermutationAttention):
    """Each channel of V = x W_V moved down by its own step, with zeros in front, then sorted. (B, N, dim) -> the same.

    `window=block` sorts each window of `group_size` slots, as CSP does. Its first slot may receive what its last one
    held, so a step is at least group_size - 1: no slot then holds the value of a token after the window's first one.
    `window=sliding` gives a token the k-th smallest of its own slot and the group_size - 1 slots before it, with
    k = c mod group_size in channel c. All tokens are treated alike, but values may be lost or doubled.
    Padding comes after every real token, so it never reaches one. Raises ValueError without spec.max_len.
    """

    accepts_bias = False
    accepts_causal = True
    mixes_prefix = False  # each token reads earlier ones
    complexity = "N C log G"
    source = "ours"
    steps: Tensor  # (C,) int64
    ranks: Tensor  # (1, 1, 1, C) int64, of the value that a sliding window gives

    def __init__(
        self,
        spec: LayerSpec,
        *,
        shift: Literal["unit", "linear_paper", "power_paper"] = "power_paper",
        group_size: Count = 2,
        window: Literal["block", "sliding"] = "block",
        inner_mult: Positive = 1,
    ) -> None:
        super().__init__(spec, reference="none", inner_mult=inner_mult, bias_formula="mix_plus_sort")
        self.group_size, self.sliding = group_size, window == "sliding"
        steps = shift_steps(shift, self.width, self.max_len, index=spec.index, depth=spec.depth)
        if self.sliding:
            self.complexity = "N C G log G"
        else:
            steps = [max(step, group_size - 1) for step in steps]
        self._longest = max(steps)
        self.register_buffer("steps", torch.tensor(steps), persistent=False)
        self.register_buffer("ranks", torch.arange(self.width)[None, None, None] % group_size, persistent=False)

    def mix(self, v: Tensor, q: Tensor | None = None, k: Tensor | None = None, given: BlockInputs = ALONE) -> Tensor:
        """(B, N, C) -> (B, N, C)."""
        return self.permute(v, given.padding)

    def permute(self, v: Tensor, padding: Padding | None) -> Tensor:
        """(B, N, C) -> (B, N, C)."""
        slots = self._shift_channels(shift_sort, v)
        if not self.sliding:
            return slots
        return self._pick_rank(shift_sort(self._slide_windows(slots, 0), None, group_size=self.group_size))

    def source_index(self, v: Tensor, padding: Padding | None) -> Tensor:
        """(B, N, C) -> (B, N, C) int64, -1 on padding and where there is no token."""
        source = self._shift_channels(shift_sort_index, v)
        source = source.masked_fill(source >= v.shape[1], -1)
        if self.sliding:
            order = shift_sort_index(
                self._slide_windows(self._shift_channels(shift_sort, v), 0), None, group_size=self.group_size
            )
            source = self._pick_rank(self._slide_windows(source, -1).gather(1, order))
        return fill_padding(source, padding, -1)

    def _shift_channels(self, operator: Callable[..., Tensor], v: Tensor) -> Tensor:
        """Each channel moved down, and sorted in blocks unless windows slide. (B, N, C) -> (B, N, C).

        Zeros behind the last token come to the front by the circular shift of the operator. They also complete the last
        window, whose slots behind the last token still hold earlier tokens.
        """
        num_tokens, size = v.shape[1], 1 if self.sliding else self.group_size
        steps = self.steps.clamp(max=num_tokens + size)  # beyond it, a channel holds zeros only
        zeros = max(size, min(self._longest, num_tokens + size))
        return operator(F.pad(v, (0, 0, 0, zeros)), steps, group_size=size)[:, :num_tokens]

    def _slide_windows(self, x: Tensor, fill: int) -> Tensor:
        """The last group_size slots of each token, one window after the other. (B, N, C) -> (B, N * G, C)."""
        windows = F.pad(x, (0, 0, self.group_size - 1, 0), value=fill).unfold(1, self.group_size, 1)  # (B, N, C, G)
        return windows.transpose(2, 3).flatten(1, 2)

    def _pick_rank(self, windows: Tensor) -> Tensor:
        """The slot of each window that its channel's rank names. (B, N * G, C) -> (B, N, C)."""
        each = torch.unflatten(windows, 1, (-1, self.group_size))  # (B, N, G, C)
        return each.gather(2, self.ranks.expand(*each.shape[:2], 1, -1)).squeeze(2)
