"""The operators as layers: a value projection, a permutation of every channel, an output projection."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .op import shift_sort
from .schedule import Shift, shift_steps


class CSP(nn.Module):
    """Rolls each channel of the values by its own step and sorts it in small windows. (B, N, dim) -> (B, N, dim).

    `max_len` is the longest sequence, from which the steps are computed; sequences may be shorter. With several layers,
    `index` and `depth` number them (the shifts exp_code, power_paper and linear_coprime differ by layer). group_size=1
    only shifts, None sorts all tokens. Source: CSP, section 3.2. Raises ValueError for a group_size below 1, and on the
    meta device, which would lose the steps.
    """

    steps: Tensor  # (dim,) int64

    def __init__(
        self,
        dim: int,
        max_len: int,
        *,
        group_size: int | None = 2,
        shift: Shift = "linear_paper",
        index: int = 0,
        depth: int = 1,
        bias: bool = True,
    ) -> None:
        super().__init__()
        if group_size is not None and group_size < 1:
            raise ValueError(f"group_size must be at least 1 (shift only) or None (complete sort), got {group_size}")
        self.group_size = group_size
        self.value = nn.Linear(dim, dim, bias=bias)
        self.out = nn.Linear(dim, dim, bias=bias)
        steps = torch.tensor(shift_steps(shift, dim, max_len, index=index, depth=depth))
        if steps.is_meta:
            raise ValueError(
                "CSP computes its steps when it is built, and no file holds them, so a model that is built on the meta "
                "device, as from_pretrained does, would lack them; call its constructor, then load_state_dict"
            )
        self.register_buffer("steps", steps, persistent=False)

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        """(B, N, dim) -> (B, N, dim); `lengths` (B,) int64 are the real tokens of each sample, padding is a suffix.

        What a real token receives does not depend on padding.
        """
        mixed = shift_sort(self.value(x), self.steps, group_size=self.group_size, lengths=lengths)
        projected: Tensor = self.out(mixed)
        return projected


class Sliceformer(nn.Module):
    """Sorts each channel of the values over all tokens. (B, N, dim) -> (B, N, dim).

    Source: Sliceformer, equation (4).
    """

    def __init__(self, dim: int, *, descending: bool = False, bias: bool = True) -> None:
        super().__init__()
        self.descending = descending
        self.value = nn.Linear(dim, dim, bias=bias)
        self.out = nn.Linear(dim, dim, bias=bias)

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        """(B, N, dim) -> (B, N, dim); `lengths` (B,) int64 are the real tokens of each sample, padding is a suffix."""
        mixed = shift_sort(self.value(x), None, group_size=None, lengths=lengths, descending=self.descending)
        projected: Tensor = self.out(mixed)
        return projected
