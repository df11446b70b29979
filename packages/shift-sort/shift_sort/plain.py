"""`shift_sort` in torch and numpy, for machines and cases without a kernel.

Three facts make it fast. A pair needs one bit of memory, not two indices. A gradient is a gather or a scatter by a
permutation, never an accumulation. numpy sorts integers with vector instructions, unlike `torch.sort` on a CPU, which
takes 2 to 30 times as long; a key and its slot packed into one integer make that sort stable and give its permutation.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from functools import cache
from threading import Lock

import numpy as np
import torch
from torch import Tensor

from .backend import Case, nothing_saved
from .reference import INTEGERS, padded_slots, sort_keys

_VALUES_PER_STEP = 1 << 17  # values per step on a CPU; they fit into the second-level cache with their keys and slots
_CACHED_BYTES = 64 << 20  # for the sources of shifts
_MAX_NETWORK_SLOTS = 8  # slots; for longer windows a sort is faster, even with the transposition


class Plain:
    """Takes every case on every device.

    Saves nothing for a shift. For pairs it saves whether each was exchanged, bool (B, N // 2, C). Otherwise it saves
    the source of each slot, numbered inside its window, (B, N, C) in the smallest integer type.
    """

    name = "plain"

    def covers(self, v: Tensor, case: Case) -> str | None:
        del v, case
        return None

    def saved_layout(self, v: Tensor, case: Case) -> tuple[tuple[int, ...], torch.dtype]:
        if case.group_size == 1:
            return (0,), torch.uint8
        if _in_pairs(case):
            return (v.shape[0], v.shape[1] // 2, v.shape[2]), torch.bool
        if case.group_size <= 256:
            return tuple(v.shape), torch.uint8
        return tuple(v.shape), torch.int16 if case.group_size <= 2**15 else torch.int32

    def forward(self, v: Tensor, case: Case, save: bool) -> tuple[Tensor, Tensor]:
        shape, dtype = self.saved_layout(v, case)
        out, saved = torch.empty_like(v), v.new_empty(shape, dtype=dtype) if save else nothing_saved(v)
        ranks = _ranks(v, case) if case.reference and case.group_size > 1 else None
        for part in _parts(v):
            x, here = v[part].contiguous(), _restricted(case, part)
            if here.steps is not None:
                x = _shift(x, here.steps, here.lengths)
            if here.group_size == 1:
                out[part] = x
            elif _in_pairs(here):
                _sort_pairs(x, here, out[part], saved[part] if save else None)
            elif not save and ranks is None and _is_ordinary(x):
                out[part] = _sorted_values(x, here)
            else:
                slots = _order(x, here)
                if ranks is not None:
                    slots = slots.gather(1, ranks[part[0]].expand_as(slots))
                out[part] = x.gather(1, slots)
                if save:
                    saved[part] = slots if here.group_size == x.shape[1] else slots - _window_starts(x, here)
        if case.lengths is not None:
            out.masked_fill_(padded_slots(v, case.lengths), 0.0)
        return out, saved

    def backward(self, grad: Tensor, saved: Tensor, case: Case) -> Tensor:
        out = torch.empty_like(grad)
        for part in _parts(grad):
            g, here = grad[part].contiguous(), _restricted(case, part)
            if here.lengths is not None:
                g = g.masked_fill(padded_slots(g, here.lengths), 0.0)
            if _in_pairs(here):
                g = _exchanged_pairs(g, saved[part])
            elif here.group_size > 1:
                slots = saved[part].long()
                if here.group_size < g.shape[1]:
                    slots += _window_starts(g, here)
                g = torch.empty_like(g).scatter_(1, slots, g)
            out[part] = g if here.steps is None else _shift(g, -here.steps, here.lengths)
        return out


BACKEND = Plain()


def _in_pairs(case: Case) -> bool:
    return case.group_size == 2 and not case.reference


# Parts of a call that fit into the CPU's cache


def _parts(v: Tensor) -> Iterator[tuple[slice, slice, slice]]:
    """Slices of (B, N, C): some whole samples, or some channels of one sample that is too large."""
    batch, num_tokens, channels = v.shape
    rows, columns = batch, channels
    if v.is_cpu:
        rows = max(1, _VALUES_PER_STEP // (num_tokens * channels))
        columns = max(16, _VALUES_PER_STEP // num_tokens)  # 16 channels: a cache line of float32
    for row in range(0, batch, rows):
        for column in range(0, channels, columns):
            yield slice(row, row + rows), slice(None), slice(column, column + columns)


def _restricted(case: Case, part: tuple[slice, slice, slice]) -> Case:
    rows, _, columns = part
    return case._replace(
        steps=None if case.steps is None else case.steps[columns],
        lengths=None if case.lengths is None else case.lengths[rows],
        descending=None if case.descending is None else case.descending[:, columns],
    )


def _is_ordinary(x: Tensor) -> bool:
    """Whether equal values have equal bits: no NaN and no -0.0. Always False on a device, which would have to wait."""
    if not x.is_cpu:
        return False
    bits = x.view(INTEGERS[x.element_size()])
    return int(bits.min()) > torch.iinfo(bits.dtype).min and not bool(x.amax().isnan())


# Shift


def _shift(x: Tensor, steps: Tensor, lengths: Tensor | None) -> Tensor:
    """(B, N, C) -> new (B, N, C), every channel rolled by its step. Padding stays."""
    if lengths is None:
        return x.flatten(1).index_select(1, _flat_sources(steps, x.shape[1])).view(x.shape)
    slots, count = torch.arange(x.shape[1], device=x.device)[:, None], lengths[:, None, None]
    return x.gather(1, _sources(slots, steps, count).where(slots < count, slots))


def _sources(slots: Tensor, steps: Tensor, count: Tensor | int) -> Tensor:
    """(slot - step) mod count for slots below the count. Shapes broadcast."""
    moved = slots - steps % count  # a remainder per value would be slower than the rest
    return moved.add_((moved >> 63) & count)  # the count where negative


_cache: OrderedDict[tuple[int, bytes], Tensor] = OrderedDict()
_cache_lock = Lock()


def _flat_sources(steps: Tensor, num_tokens: int) -> Tensor:
    """The source of each value of a flattened (N, C) sample: (N * C,). Cached on a CPU."""
    if not steps.is_cpu:  # reading the steps would synchronise with the device
        return _new_flat_sources(steps, num_tokens)
    key = (num_tokens, steps.numpy().tobytes())
    with _cache_lock:
        if key not in _cache:
            _cache[key] = _new_flat_sources(steps, num_tokens)
            while len(_cache) > 1 and sum(index.nbytes for index in _cache.values()) > _CACHED_BYTES:
                _cache.popitem(last=False)
        _cache.move_to_end(key)
        return _cache[key]


def _new_flat_sources(steps: Tensor, num_tokens: int) -> Tensor:
    slots = torch.arange(num_tokens, device=steps.device)[:, None]
    flat = _sources(slots, steps, num_tokens) * len(steps) + torch.arange(len(steps), device=steps.device)
    return flat.flatten().to(torch.int32 if flat.numel() < 2**31 else torch.int64)


# Windows of two


def _sort_pairs(x: Tensor, case: Case, out: Tensor, saved: Tensor | None) -> None:
    (first, second), (low, high) = _pairs(x), _pairs(out)
    ordinary = _is_ordinary(x)
    if ordinary and case.descending is None and case.lengths is None:
        torch.minimum(first, second, out=low)
        torch.maximum(first, second, out=high)
        if saved is not None:
            torch.lt(second, first, out=saved)
    else:
        swap = _before(second, first, ordinary)
        if case.descending is not None:
            down = case.descending[: first.shape[1]]
            swap ^= (swap ^ _before(first, second, ordinary)) & down
        if case.lengths is not None:
            swap &= ~padded_slots(x, case.lengths)[:, 1::2]
        _exchange(first, second, swap, low, high)
        if saved is not None:
            saved.copy_(swap)
    out[:, 2 * first.shape[1] :] = x[:, 2 * first.shape[1] :]


def _exchanged_pairs(x: Tensor, swap: Tensor) -> Tensor:
    out = torch.empty_like(x)
    _exchange(*_pairs(x), swap, *_pairs(out))
    out[:, 2 * swap.shape[1] :] = x[:, 2 * swap.shape[1] :]
    return out


def _pairs(x: Tensor) -> tuple[Tensor, Tensor]:
    """The first and the second slots of all pairs: two (B, N // 2, C), without the last slot of an odd number."""
    return x[:, 0:-1:2], x[:, 1::2]


def _before(x: Tensor, y: Tensor, ordinary: bool) -> Tensor:
    """True where x comes before y in ascending order. NaN comes last and equals itself."""
    return x < y if ordinary else (y <= x).logical_or_(x != x).logical_not_()


def _exchange(first: Tensor, second: Tensor, swap: Tensor, low: Tensor, high: Tensor) -> None:
    """Writes first and second to low and high, exchanged where `swap`; by bits, because `where` is slow."""
    integer = INTEGERS[first.element_size()]
    first, second = first.view(integer), second.view(integer)
    difference = (first ^ second).bitwise_and_(swap.view(torch.uint8).to(integer).neg_())
    torch.bitwise_xor(first, difference, out=low.view(integer))
    torch.bitwise_xor(second, difference, out=high.view(integer))


# Windows of any size


def _order(x: Tensor, case: Case) -> Tensor:
    """The slots of each window in stable order of their values: (B, N, C) -> (B, N, C) int64, numbered over windows."""
    num_tokens, size = x.shape[1], case.group_size
    keys = _directed(sort_keys(x, may_hold_nan=not _is_ordinary(x)), case)
    width = 8 * keys.element_size()
    slots = torch.arange(keys.shape[1], device=x.device)[:, None]
    if not x.is_cpu or width == 64 or (width == 16 and len(slots) > 2**16):
        order = torch.unflatten(keys, 1, (-1, size)).sort(dim=2, stable=True).indices.flatten(1, 2)[:, :num_tokens]
        return order + _window_starts(x, case)
    packed = keys.to(INTEGERS[2 * keys.element_size()]).bitwise_left_shift_(width)
    packed = _sort_integers(packed.bitwise_or_(slots.to(packed.dtype)), size)
    return packed[:, :num_tokens].bitwise_and_(2**width - 1).long()


def _sorted_values(x: Tensor, case: Case) -> Tensor:
    """Ordinary values sorted inside windows: (B, N, C) -> (B, N, C), padding undefined."""
    integer = INTEGERS[x.element_size()]
    keys = _sort_integers(_directed(_mirror(x.view(integer)), case), case.group_size)[:, : x.shape[1]]
    return _mirror(_reversed_order(keys, case)).view(x.dtype)


def _mirror(bits: Tensor) -> Tensor:
    """Bits of a float to an integer of the same order, and back: flips all bits but the sign of negative numbers."""
    limits = torch.iinfo(bits.dtype)
    return (bits >> (limits.bits - 1)).bitwise_and_(limits.max).bitwise_xor_(bits)


def _directed(keys: Tensor, case: Case) -> Tensor:
    """Keys for an ascending sort, padding last, the last window completed. (B, N, C) -> (B, K * group_size, C)."""
    largest = torch.iinfo(keys.dtype).max
    keys = _reversed_order(keys, case)
    if case.lengths is not None:
        keys = keys.masked_fill_(padded_slots(keys, case.lengths), largest)
    tail = -keys.shape[1] % case.group_size
    return torch.cat([keys, keys.new_full((len(keys), tail, keys.shape[2]), largest)], dim=1) if tail else keys


def _reversed_order(keys: Tensor, case: Case) -> Tensor:
    """The keys, their order reversed in place where the case sorts downwards."""
    if case.descending is None:
        return keys
    down = -case.descending.to(keys.dtype)  # True -> all bits set
    if len(down) > 1:
        down = down.repeat_interleave(case.group_size, dim=0)[: keys.shape[1]]
    return keys.bitwise_xor_(down)


def _sort_integers(keys: Tensor, size: int) -> Tensor:
    """Windows of `size` slots sorted on a CPU: (B, K * size, C) -> (B, K * size, C)."""
    if size <= _MAX_NETWORK_SLOTS:
        slots = torch.unflatten(keys, 1, (-1, size)).numpy()
        for i, j in _network(size):
            low, high = slots[:, :, i], slots[:, :, j]
            least = np.minimum(low, high)
            np.maximum(low, high, out=high)
            low[:] = least
        return keys
    rows = keys.transpose(1, 2).contiguous()  # vectorised sorts need contiguous numbers
    torch.unflatten(rows, 2, (-1, size)).numpy().sort(axis=-1)
    return rows.transpose(1, 2).contiguous()


@cache
def _network(size: int) -> tuple[tuple[int, int], ...]:
    """Comparators (low, high) that sort `size` numbers. Source: Batcher's merge exchange, Knuth volume 3, 5.2.2 M."""
    comparators = []
    top = 1 << max((size - 1).bit_length() - 1, 0)
    p = top
    while p:
        q, r, d = top, 0, p
        while True:
            comparators += [(i, i + d) for i in range(size - d) if i & p == r]
            if q == p:
                break
            d, q, r = q - p, q >> 1, p
        p >>= 1
    return tuple(comparators)


def _window_starts(x: Tensor, case: Case) -> Tensor:
    """First slot of the window of every slot: (N, 1)."""
    slots = torch.arange(x.shape[1], device=x.device)[:, None]
    return slots - slots % case.group_size


def _ranks(v: Tensor, case: Case) -> Tensor:
    """Rank of each slot of channel 0 in its window, numbered over windows: (B, N, C) -> (B, N, 1)."""
    leader = (slice(None), slice(None), slice(0, 1))
    return _order(v[leader].contiguous(), _restricted(case, leader)).argsort(dim=1)
