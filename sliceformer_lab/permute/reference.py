"""Shift and group sort in plain PyTorch: the definition that a faster kernel must equal bit for bit."""

from __future__ import annotations

import torch
from torch import Tensor

_INTEGERS = {2: torch.int16, 4: torch.int32, 8: torch.int64}  # bytes of a float -> integer of its bits


def shift_sort(
    v: Tensor,
    steps: Tensor | None,
    *,
    group_size: int | None,
    lengths: Tensor | None = None,
    descending: bool | Tensor = False,
    reference: bool = False,
) -> Tensor:
    """Roll each channel along the tokens, then sort it inside windows. (B, N, C) -> (B, N, C).

    With n real tokens (`lengths` (B,), else N), slot i of channel c first takes token (i - steps[c]) mod n, `steps`
    (C,) non-negative; then each window of `group_size` slots is sorted (None: all slots, which makes the steps
    redundant; 1: shift only; the last window may be short). Padding slots become 0.
    `descending` is one bool, (C,) or, window by window, (K, C). With `reference`, channel 0 stays as it is and every
    other channel takes the rank order of channel 0 in each window.

    Values are moved, never computed: all float types are exact, and ties, NaN, inf and gradients are those of
    `torch.sort(stable=True)`. Source: CSP, section 3.2; Sliceformer, equation (4).
    Raises ValueError if group_size is below 1 or `descending` does not fit the windows.
    """
    x = v.transpose(1, 2).contiguous()
    moved = x.gather(2, _source(x.detach(), steps, group_size, lengths, descending, reference))
    if lengths is not None:
        moved = moved.masked_fill(_padded(x, lengths), 0.0)
    return moved.transpose(1, 2).contiguous()  # a linear layer reads strided tokens slowly


def shift_sort_index(
    v: Tensor,
    steps: Tensor | None,
    *,
    group_size: int | None,
    lengths: Tensor | None = None,
    descending: bool | Tensor = False,
    reference: bool = False,
) -> Tensor:
    """The token that each output slot of `shift_sort` is read from: (B, N, C) -> (B, N, C) int64, -1 on padding."""
    x = v.detach().transpose(1, 2).contiguous()
    source = _source(x, steps, group_size, lengths, descending, reference)
    if lengths is not None:
        source = source.masked_fill(_padded(x, lengths), -1)
    return source.transpose(1, 2)


def _source(
    x: Tensor,
    steps: Tensor | None,
    group_size: int | None,
    lengths: Tensor | None,
    descending: bool | Tensor,
    reference: bool,
) -> Tensor:
    """Source token of every slot (B, C, N); padding slots are their own source, so that it is a permutation.

    Tokens come last from here on: gathers and sorts along a contiguous axis are several times faster on the CPU.
    """
    if group_size is not None and group_size < 1:
        raise ValueError(f"group_size must be at least 1 (shift only) or None (complete sort), got {group_size}")
    num_tokens = x.shape[2]
    size = min(group_size or num_tokens, num_tokens)
    source = torch.arange(num_tokens, device=x.device).expand(x.shape)
    if steps is not None and group_size is not None:
        if reference:
            steps = steps * (torch.arange(len(steps), device=x.device) > 0)
        source = _shifted(source, steps[:, None], lengths)
    if size == 1:
        return source
    keys = _sort_keys(x).gather(2, source)
    if descending is not False:
        keys ^= -_per_slot(descending, keys, size).to(keys.dtype)  # True -> all bits set: the order reversed
    if lengths is not None:
        keys.masked_fill_(_padded(x, lengths), torch.iinfo(keys.dtype).max)
    source = _sort_windows(source, keys, size)
    if reference:
        ranks = source[:, :1].argsort(dim=2)  # of channel 0 at each slot, counted over all windows
        source = source.gather(2, ranks.expand_as(source))
    return source


def _padded(x: Tensor, lengths: Tensor) -> Tensor:
    return torch.arange(x.shape[2], device=x.device) >= lengths[:, None, None]  # (B, 1, N)


def _shifted(slots: Tensor, steps: Tensor, lengths: Tensor | None) -> Tensor:
    """(slot - step) mod n for the n real tokens of each sample; padding stays in place. -> (B, C, N)."""
    if lengths is None:
        return ((slots[:1] - steps) % slots.shape[2]).expand_as(slots)
    count = lengths[:, None, None]
    return torch.where(slots < count, (slots - steps) % count, slots)


def _sort_keys(x: Tensor) -> Tensor:
    """Integers in the order of `torch.sort`: -0.0 equals 0.0, NaN equal to each other and above inf.

    The largest integer is never used: it is left for padding.
    """
    bits = x.view(_INTEGERS[x.element_size()])
    limits = torch.iinfo(bits.dtype)
    sign = bits >> (limits.bits - 1)  # -1 where negative, else 0
    keys = (bits & limits.max).bitwise_xor_(sign).sub_(sign)  # magnitude, negated where negative
    return keys.masked_fill_(x.isnan(), limits.max - 1)


def _per_slot(descending: bool | Tensor, keys: Tensor, size: int) -> Tensor:
    """Directions as () or (C, 1), or, where they differ by window (K, C), as (C, N)."""
    directions = torch.as_tensor(descending, device=keys.device)
    if directions.dim() < 2:
        return directions[..., None]
    num_windows = -(-keys.shape[2] // size)
    if len(directions) != num_windows:
        raise ValueError(f"descending has {len(directions)} windows, but {keys.shape[2]} tokens make {num_windows}")
    return directions.T.repeat_interleave(size, dim=1)[:, : keys.shape[2]]


def _sort_windows(source: Tensor, keys: Tensor, size: int) -> Tensor:
    """`source` in stable order of its keys inside each window of `size` slots. (B, C, N) -> (B, C, N)."""
    num_tokens = keys.shape[2]
    tail = -num_tokens % size
    if tail:
        keys = torch.cat([keys, keys.new_full((*keys.shape[:2], tail), torch.iinfo(keys.dtype).max)], dim=2)
        source = torch.cat([source, source[..., :tail]], dim=2)
    keys = torch.unflatten(keys, 2, (-1, size))
    if size == 2:
        swap = keys[..., 1] < keys[..., 0]
        order = torch.stack([swap, ~swap], dim=3).to(torch.int64)
    else:
        order = keys.sort(stable=True).indices
    ordered = torch.unflatten(source, 2, (-1, size)).gather(3, order)
    return ordered.flatten(2)[..., :num_tokens]
