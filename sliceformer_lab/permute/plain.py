"""`shift_sort` in torch and numpy alone, at the speed they have: what runs where no kernel does.

Three facts carry it. A pair needs one bit of memory, not two indices. A gradient is a gather or scatter by a
permutation, never an accumulation. And numpy sorts integers with vector instructions, which `torch.sort` on a CPU does
not: a key and its slot packed into one integer make that sort stable and give its permutation.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from threading import Lock

import torch
from torch import Tensor

from sliceformer_lab.permute.backend import Case, nothing_saved
from sliceformer_lab.permute.reference import INTEGERS, padded_slots, sort_keys

_CHUNK = 1 << 17  # values handled at once on a CPU: with their keys and slots they stay in the second-level cache
_CACHED_BYTES = 64 << 20


class Plain:
    """Takes every case on every device.

    Saved: nothing for a shift; whether each pair was exchanged, bool (B, N // 2, C); else the slot inside its window
    that each slot was filled from, (B, C, N) in the smallest integer.
    """

    name = "plain"

    def covers(self, v: Tensor, case: Case) -> str | None:
        del v, case
        return None

    def saved_layout(self, v: Tensor, case: Case) -> tuple[tuple[int, ...], torch.dtype]:
        batch, num_tokens, channels = v.shape
        if case.group_size == 1:
            return (0,), torch.uint8
        if _in_pairs(case):
            return (batch, num_tokens // 2, channels), torch.bool
        if case.group_size <= 256:
            return (batch, channels, num_tokens), torch.uint8
        return (batch, channels, num_tokens), torch.int16 if case.group_size <= 2**15 else torch.int32

    def forward(self, v: Tensor, case: Case, save: bool) -> tuple[Tensor, Tensor]:
        shape, dtype = self.saved_layout(v, case)
        saved = v.new_empty(shape, dtype=dtype) if save else nothing_saved(v)
        if case.group_size == 1:
            out = _shift(v, case, back=False)
        elif _in_pairs(case):
            out = _sort_pairs(v, case, saved if save else None)
        else:
            out = _sort_windows(v, case, saved if save else None)
        if case.lengths is not None:
            out.masked_fill_(padded_slots(v, case.lengths), 0.0)
        return out, saved

    def backward(self, grad: Tensor, saved: Tensor, case: Case) -> Tensor:
        if case.lengths is not None:
            grad = grad.masked_fill(padded_slots(grad, case.lengths), 0.0)
        if case.group_size == 1:
            return _shift(grad, case, back=True)
        if _in_pairs(case):
            return _unsort_pairs(grad, case, saved)
        return _unsort_windows(grad, case, saved)


BACKEND = Plain()


def _in_pairs(case: Case) -> bool:
    return case.group_size == 2 and not case.reference


# Shift


def _shift(x: Tensor, case: Case, *, back: bool) -> Tensor:
    """(B, N, C) -> new (B, N, C), every channel rolled by its step, or, with `back`, rolled back."""
    if case.steps is None:
        return x.clone()
    if case.lengths is None:
        return x.flatten(1).index_select(1, _flat_sources(case.steps, x.shape[1], back)).view(x.shape)
    slots = torch.arange(x.shape[1], device=x.device)[:, None]
    return x.gather(1, _sources(slots, -case.steps if back else case.steps, case.lengths[:, None, None]))


def _sources(slots: Tensor, steps: Tensor, count: Tensor | int) -> Tensor:
    """(slot - step) mod count; a slot at or above its count stays. Shapes broadcast."""
    moved = slots - steps % count  # a remainder per value would be slower than everything else
    moved += (moved >> 63) & count  # add count where negative
    return moved if isinstance(count, int) else moved.where(slots < count, slots)


_cache: OrderedDict[tuple[int, bool, bytes], Tensor] = OrderedDict()
_cache_lock = Lock()


def _flat_sources(steps: Tensor, num_tokens: int, back: bool) -> Tensor:
    """Where each value of a flattened (N, C) sample is read from: (N * C,). Remembered on the CPU, newest first."""
    if steps.device.type != "cpu":  # reading the steps would wait for the device
        return _new_flat_sources(steps, num_tokens, back)
    key = (num_tokens, back, steps.numpy().tobytes())
    with _cache_lock:
        if key not in _cache:
            _cache[key] = _new_flat_sources(steps, num_tokens, back)
            while len(_cache) > 1 and sum(index.nbytes for index in _cache.values()) > _CACHED_BYTES:
                _cache.popitem(last=False)
        _cache.move_to_end(key)
        return _cache[key]


def _new_flat_sources(steps: Tensor, num_tokens: int, back: bool) -> Tensor:
    slots = torch.arange(num_tokens, device=steps.device)[:, None]
    channels = torch.arange(len(steps), device=steps.device)
    flat = _sources(slots, -steps if back else steps, num_tokens) * len(steps) + channels
    return flat.flatten().to(torch.int32 if flat.numel() < 2**31 else torch.int64)


# Windows of two


def _sort_pairs(v: Tensor, case: Case, saved: Tensor | None) -> Tensor:
    out = torch.empty_like(v)
    real = None if case.lengths is None else ~padded_slots(v, case.lengths)[:, 1::2]
    for rows in _row_chunks(v):
        part = Case(case.steps, 1, None if case.lengths is None else case.lengths[rows], None, False)
        x = v[rows] if case.steps is None else _shift(v[rows], part, back=False)
        (first, second), (low, high) = _pairs(x), _pairs(out[rows])
        ordinary = _is_ordinary(x)
        if ordinary and case.descending is None and real is None:
            torch.minimum(first, second, out=low)
            torch.maximum(first, second, out=high)
            if saved is not None:
                torch.lt(second, first, out=saved[rows])
        else:
            swap = _before(second, first, ordinary)
            if case.descending is not None:
                down = case.descending[: first.shape[1]]
                swap ^= (swap ^ _before(first, second, ordinary)) & down
            if real is not None:
                swap &= real[rows]
            _exchange(first, second, swap, low, high)
            if saved is not None:
                saved[rows] = swap
        out[rows, 2 * first.shape[1] :] = x[:, 2 * first.shape[1] :]
    return out


def _unsort_pairs(grad: Tensor, case: Case, saved: Tensor) -> Tensor:
    out = torch.empty_like(grad)
    for rows in _row_chunks(grad):
        part = Case(case.steps, 1, None if case.lengths is None else case.lengths[rows], None, False)
        slots = out[rows] if case.steps is None else torch.empty_like(grad[rows])
        _exchange(*_pairs(grad[rows]), saved[rows], *_pairs(slots))
        slots[:, 2 * saved.shape[1] :] = grad[rows, 2 * saved.shape[1] :]
        if case.steps is not None:
            out[rows] = _shift(slots, part, back=True)
    return out


def _pairs(x: Tensor) -> tuple[Tensor, Tensor]:
    """First and second of every pair of slots: two (B, N // 2, C). A slot left over is in neither."""
    return x[:, 0:-1:2], x[:, 1::2]


def _before(x: Tensor, y: Tensor, ordinary: bool) -> Tensor:
    """Where x sorts before y upwards. NaN comes last and equals itself."""
    return x < y if ordinary else (y <= x).logical_or_(x != x).logical_not_()


def _exchange(first: Tensor, second: Tensor, swap: Tensor, low: Tensor, high: Tensor) -> None:
    """Writes first and second to low and high, exchanged where `swap`; by bits, since `where` is not vectorised."""
    integer = INTEGERS[first.element_size()]
    first, second = first.view(integer), second.view(integer)
    difference = (first ^ second).bitwise_and_(swap.view(torch.uint8).to(integer).neg_())
    torch.bitwise_xor(first, difference, out=low.view(integer))
    torch.bitwise_xor(second, difference, out=high.view(integer))


# Windows of any size: tokens last, so that sorts and gathers run along a contiguous axis


def _sort_windows(v: Tensor, case: Case, saved: Tensor | None) -> Tensor:
    out = torch.empty_like(v)
    starts = _window_starts(v, case)
    ranks = v.new_empty(0, dtype=torch.int64)
    for rows, columns in _chunks(v):
        x = v[rows, :, columns].transpose(1, 2).contiguous()
        if case.steps is not None:
            x = x.gather(2, _source_slots(x, case, rows, columns))
        padding = None if case.lengths is None else padded_slots(x.mT, case.lengths[rows]).mT
        down = None if case.descending is None else _per_slot(case.descending[:, columns], case.group_size, x.shape[2])
        if saved is None and not case.reference and _is_ordinary(x):
            y = _sorted_values(x, down, padding, case.group_size)
        else:
            keys = sort_keys(x, may_hold_nan=not _is_ordinary(x))
            if down is not None:
                keys ^= -down.to(keys.dtype)  # True -> all bits set: the order reversed
            if padding is not None:
                keys.masked_fill_(padding, torch.iinfo(keys.dtype).max)
            slots = _stable_order(keys, case.group_size)
            if case.reference:
                ranks = slots[:, :1].argsort(dim=2) if columns.start == 0 else ranks
                slots = slots.gather(2, ranks.expand_as(slots))
            y = x.gather(2, slots)
            if saved is not None:
                saved[rows, columns] = slots if starts is None else slots - starts
        out[rows, :, columns] = y.transpose(1, 2)
    return out


def _unsort_windows(grad: Tensor, case: Case, saved: Tensor) -> Tensor:
    out = torch.empty_like(grad)
    starts = _window_starts(grad, case)
    for rows, columns in _chunks(grad):
        g = grad[rows, :, columns].transpose(1, 2).contiguous()
        slots = saved[rows, columns].long()
        if starts is not None:
            slots += starts
        if case.steps is not None:
            slots = _source_slots(g, case, rows, columns).gather(2, slots)
        out[rows, :, columns] = torch.empty_like(g).scatter_(2, slots, g).transpose(1, 2)
    return out


def _source_slots(x: Tensor, case: Case, rows: slice, columns: slice) -> Tensor:
    """Token that each slot of a chunk (b, c, N) takes by the shift alone: (b, c, N)."""
    slots = torch.arange(x.shape[2], device=x.device)
    steps = slots[:1, None] if case.steps is None else case.steps[columns, None]
    count = x.shape[2] if case.lengths is None else case.lengths[rows, None, None]
    return _sources(slots, steps, count).expand(x.shape)


def _window_starts(v: Tensor, case: Case) -> Tensor | None:
    """First slot of the window of every slot, (N,); None for a single window."""
    if case.group_size == v.shape[1]:
        return None
    slots = torch.arange(v.shape[1], device=v.device)
    return slots - slots % case.group_size


def _per_slot(directions: Tensor, size: int, num_tokens: int) -> Tensor:
    """(1, c) -> (c, 1), or (K, c) -> (c, N)."""
    if len(directions) == 1:
        return directions.T
    return directions.T.repeat_interleave(size, dim=1)[:, :num_tokens]


def _stable_order(keys: Tensor, size: int) -> Tensor:
    """The slots of each window in stable order of their keys: (b, c, N) -> (b, c, N) int64, counted over windows."""
    num_tokens = keys.shape[2]
    keys = _whole_windows(keys, size)
    half = 8 * keys.element_size()
    if not keys.is_cpu or half == 64 or (half == 16 and keys.shape[2] > 2**16):
        order = keys.unflatten(2, (-1, size)).sort(stable=True).indices.flatten(2)[..., :num_tokens]
        return order + torch.arange(0, keys.shape[2], size, device=keys.device).repeat_interleave(size)[:num_tokens]
    wide = INTEGERS[2 * keys.element_size()]
    packed = keys.to(wide).bitwise_left_shift_(half).bitwise_or_(torch.arange(keys.shape[2], dtype=wide))
    packed.unflatten(2, (-1, size)).numpy().sort(axis=-1)
    return packed[..., :num_tokens].bitwise_and_(2**half - 1).long()


def _sorted_values(x: Tensor, down: Tensor | None, padding: Tensor | None, size: int) -> Tensor:
    """Ordinary values (b, c, N) sorted inside windows; padding, wherever it is in its window, comes last."""
    keys = _mirror(x.view(INTEGERS[x.element_size()]))
    if down is not None:
        keys ^= -down.to(keys.dtype)
    if padding is not None:
        keys.masked_fill_(padding, torch.iinfo(keys.dtype).max)
    keys = _whole_windows(keys, size)
    keys.unflatten(2, (-1, size)).numpy().sort(axis=-1)
    keys = keys[..., : x.shape[2]]
    if down is not None:
        keys ^= -down.to(keys.dtype)
    return _mirror(keys).view(x.dtype)


def _mirror(bits: Tensor) -> Tensor:
    """Bits of a float to an integer of the same order, and back: all but the sign are turned in negative numbers."""
    limits = torch.iinfo(bits.dtype)
    return (bits >> (limits.bits - 1)).bitwise_and_(limits.max).bitwise_xor_(bits)


def _whole_windows(keys: Tensor, size: int) -> Tensor:
    """The last window filled up with the largest integer."""
    tail = -keys.shape[2] % size
    return torch.nn.functional.pad(keys, (0, tail), value=torch.iinfo(keys.dtype).max) if tail else keys


# Chunks and what they hold


def _is_ordinary(x: Tensor) -> bool:
    """Whether equal means equal bits: neither NaN nor -0.0. Asked on a CPU only, since a device would have to wait."""
    if not x.is_cpu or x.numel() == 0:
        return False
    bits = x.view(INTEGERS[x.element_size()])
    return int(bits.amin()) > torch.iinfo(bits.dtype).min and not bool(x.amax().isnan())


def _row_chunks(v: Tensor) -> Iterator[slice]:
    step = max(1, _CHUNK // (v.shape[1] * v.shape[2])) if v.is_cpu else v.shape[0]
    for start in range(0, v.shape[0], step):
        yield slice(start, start + step)


def _chunks(v: Tensor) -> Iterator[tuple[slice, slice]]:
    """Samples and channels of (B, N, C), all channels of some samples before those of the next."""
    width = max(16, _CHUNK // v.shape[1]) if v.is_cpu else v.shape[2]  # 16 channels: a cache line of float32
    for rows in _row_chunks(v):
        for start in range(0, v.shape[2], width):
            yield rows, slice(start, start + width)
