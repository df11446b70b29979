"""`shift_sort` in operators that every export format has, for inference outside this package."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.fx.experimental.symbolic_shapes import statically_known_true


def decomposed(
    v: Tensor,
    steps: Tensor | None,
    lengths: Tensor | None,
    descending: Tensor | None,
    group_size: int,
    reference: bool,
    backend: str | None,
    save: bool,
) -> tuple[Tensor, Tensor]:
    """The custom operator behind `shift_sort` in plain operators: (B, N, C) -> (B, N, C), and nothing saved.

    Pairs are a minimum and a maximum, larger windows one sort. Equal to the operator for values without NaN.
    """
    del backend, save
    x = v.mT  # (B, C, N)
    num_tokens = x.shape[2]
    slots = torch.arange(num_tokens, device=v.device).expand(x.shape)
    source = slots
    padding = None if lengths is None else slots >= lengths[:, None, None]
    if steps is not None:
        if reference:
            steps = steps * (torch.arange(steps.shape[0], device=steps.device) > 0)
        count = num_tokens if lengths is None else lengths[:, None, None]
        source = (slots - steps[:, None]) % count
        source = source if padding is None else torch.where(padding, slots, source)
    down = None
    if descending is not None:
        down = descending.T.repeat_interleave(group_size if len(descending) > 1 else num_tokens, dim=1)[:, :num_tokens]
    if group_size == 2 and not reference:
        moved = _sort_pairs(x.gather(2, source), slots, down, num_tokens if lengths is None else lengths[:, None, None])
        moved = moved if padding is None else moved.masked_fill(padding, 0.0)
        return moved.mT.contiguous(), v.new_empty(0, dtype=torch.uint8)
    if group_size != 1:
        keys = x.gather(2, source)
        if down is not None:
            keys = torch.where(down, -keys, keys)
        if padding is not None:
            keys = keys.masked_fill(padding, torch.inf)
        source = _sort_windows(source, keys, group_size, stable=reference or padding is not None)
        if reference:
            ranks = source[:, :1].argsort(dim=2)
            source = source.gather(2, ranks.expand_as(source))
    moved = x.gather(2, source)
    moved = moved if padding is None else moved.masked_fill(padding, 0.0)
    return moved.mT.contiguous(), v.new_empty(0, dtype=torch.uint8)


def _sort_pairs(x: Tensor, slots: Tensor, down: Tensor | None, count: Tensor | int) -> Tensor:
    """Each pair of the first `count` slots in order; the last one may be alone. (B, C, N) -> (B, C, N)."""
    second = slots % 2 == 1
    other = slots + 1 - 2 * (slots % 2)
    partner = x.gather(2, torch.where(other < count, other, slots))
    takes_larger = second if down is None else second ^ down
    return torch.where(takes_larger, torch.maximum(x, partner), torch.minimum(x, partner))


def _sort_windows(source: Tensor, keys: Tensor, size: int, stable: bool) -> Tensor:
    """`source` in the order of its keys inside each window of `size` slots. (B, C, N) -> (B, C, N).

    Values alone do not need a stable order; ranks do, and padding, which must stay behind infinity. Not every format
    has a stable sort.
    """
    num_tokens = keys.shape[2]
    if statically_known_true(size == num_tokens):  # without a guard that excludes this length
        indices = keys.sort(dim=2, stable=True).indices if stable else keys.sort(dim=2).indices
        return source.gather(2, indices)
    num_windows = num_tokens // size + 1  # never 1, which would be taken as fixed
    slots = torch.arange(num_windows * size, device=keys.device)  # the last ones are beyond the tokens
    token = slots.clamp(max=num_tokens - 1)  # read, and not padded or cut: their sizes would fix the length
    keys = keys[:, :, token].masked_fill(slots >= num_tokens, torch.inf)
    order = torch.unflatten(keys, 2, (num_windows, size)).sort(dim=3, stable=True).indices
    moved = torch.unflatten(source[:, :, token], 2, (num_windows, size)).gather(3, order).flatten(2)
    return moved[:, :, torch.arange(num_tokens, device=keys.device)]
