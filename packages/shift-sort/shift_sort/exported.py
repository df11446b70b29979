"""`shift_sort` in operators that every export format has, for inference outside this package."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.fx.experimental.symbolic_shapes import statically_known_true

NETWORK_SIZES = (2, 4, 8, 16)  # of windows that are exported as a sorting network; 16 take ten steps


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

    Pairs are a minimum and a maximum, windows of 4, 8 and 16 a sorting network, others one sort. Equal to the operator
    for values without NaN.
    """
    del backend, save
    x = v.mT  # (B, C, N)
    num_tokens = x.shape[2]
    slots = torch.arange(num_tokens, device=v.device).expand(x.shape)
    source = slots
    count = num_tokens if lengths is None else lengths[:, None, None]
    padding = None if lengths is None else slots >= lengths[:, None, None]
    if steps is not None:
        if reference:
            steps = steps * (torch.arange(steps.shape[0], device=steps.device) > 0)
        source = (slots + (count - steps[:, None] % count)) % count  # of no negative number: runtimes differ there
        source = source if padding is None else torch.where(padding, slots, source)
    down = None
    if descending is not None:
        down = descending.T.repeat_interleave(group_size if len(descending) > 1 else num_tokens, dim=1)[:, :num_tokens]
    moved = x.gather(2, source)
    if group_size == 2 and not reference:
        moved = _sort_pairs(moved, slots, down, count)
    elif group_size != 1:
        keys = moved if down is None else torch.where(down, -moved, moved)
        keys = keys if padding is None else keys.masked_fill(padding, torch.inf)
        if reference:
            source = _sort_windows(keys, group_size, source)
            moved = x.gather(2, source.gather(2, source[:, :1].argsort(dim=2).expand_as(source)))
        else:
            moved = _sort_windows(keys, group_size)
            moved = moved if down is None else torch.where(down, -moved, moved)
    moved = moved if padding is None else moved.masked_fill(padding, 0.0)
    return moved.mT.contiguous(), v.new_empty(0, dtype=torch.uint8)


def _sort_pairs(x: Tensor, slots: Tensor, down: Tensor | None, count: Tensor | int) -> Tensor:
    """Each pair of the first `count` slots in order; the last one may be alone. (B, C, N) -> (B, C, N)."""
    second = slots % 2 == 1
    other = slots + 1 - 2 * (slots % 2)
    partner = x.gather(2, torch.where(other < count, other, slots))
    takes_larger = second if down is None else second ^ down
    return torch.where(takes_larger, torch.maximum(x, partner), torch.minimum(x, partner))


def _sort_windows(keys: Tensor, size: int, source: Tensor | None = None) -> Tensor:
    """Keys in order inside each window of `size` slots, or `source` in their order. (B, C, N) -> (B, C, N).

    Only `source` needs a stable order, which not every format has: equal keys, and infinity beside padding, are alike.
    """
    num_tokens = keys.shape[2]
    is_whole = statically_known_true(size == num_tokens)  # without a guard that excludes this length
    if not is_whole:
        num_windows = num_tokens // size + 1  # never 1, which would be taken as fixed
        slots = torch.arange(num_windows * size, device=keys.device)  # the last ones are beyond the tokens
        token = slots.clamp(max=num_tokens - 1)  # read, and not padded or cut: their sizes would fix the length
        keys = torch.unflatten(keys[:, :, token].masked_fill(slots >= num_tokens, torch.inf), 2, (num_windows, size))
        source = None if source is None else torch.unflatten(source[:, :, token], 2, (num_windows, size))
    if source is not None:
        moved = source.gather(-1, keys.sort(dim=-1, stable=True).indices)
    elif not is_whole and size in NETWORK_SIZES:
        moved = _sort_by_network(keys, size)
    else:
        moved = keys.sort(dim=-1).values
    return moved if is_whole else moved.flatten(2)[:, :, torch.arange(num_tokens, device=keys.device)]


def _sort_by_network(x: Tensor, size: int) -> Tensor:
    """Batcher's bitonic network over the last dimension, a power of two: minima and maxima alone. Same shape."""
    slots = torch.arange(size, device=x.device)
    stages = [(run, gap) for run in NETWORK_SIZES if run <= size for gap in NETWORK_SIZES[::-1] if gap <= run]
    for run, gap in stages:
        partner = x[..., slots ^ (gap // 2)]
        takes_larger = ((slots & (gap // 2)) > 0) ^ ((slots & run) > 0)
        x = torch.where(takes_larger, torch.maximum(x, partner), torch.minimum(x, partner))
    return x
