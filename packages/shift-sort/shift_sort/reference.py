"""Shift and group sort with `torch.sort`: the definition that faster backends must equal bit for bit."""

from __future__ import annotations

import torch
from torch import Tensor

from .backend import Case, nothing_saved

INTEGERS = {2: torch.int16, 4: torch.int32, 8: torch.int64}  # bytes of a float -> integer of its bits


class Reference:
    """Computes the source tokens with `torch.sort` and saves them as int64. Takes every case."""

    name = "reference"

    def covers(self, v: Tensor, case: Case) -> str | None:
        del v, case
        return None

    def saved_layout(self, v: Tensor, case: Case) -> tuple[tuple[int, ...], torch.dtype]:
        del case
        return tuple(v.shape), torch.int64

    def forward(self, v: Tensor, case: Case, save: bool) -> tuple[Tensor, Tensor]:
        source = source_index(v, case)
        moved = v.gather(1, source)
        if case.lengths is not None:
            moved.masked_fill_(padded_slots(v, case.lengths), 0.0)
        return moved, source if save else nothing_saved(v)

    def backward(self, grad: Tensor, saved: Tensor, case: Case) -> Tensor:
        if case.lengths is not None:
            grad = grad.masked_fill(padded_slots(grad, case.lengths), 0.0)
        return torch.zeros_like(grad).scatter_(1, saved, grad)


BACKEND = Reference()


def source_index(v: Tensor, case: Case) -> Tensor:
    """The source token of every slot: (B, N, C) -> (B, N, C) int64, a permutation per sample and channel.

    A padding slot takes its own value.
    """
    return _source(v.transpose(1, 2).contiguous(), case).transpose(1, 2).contiguous()


def padded_slots(v: Tensor, lengths: Tensor) -> Tensor:
    """True on padding: (B, N, 1)."""
    return torch.arange(v.shape[1], device=v.device)[:, None] >= lengths[:, None, None]


def sort_keys(x: Tensor, *, may_hold_nan: bool = True) -> Tensor:
    """Integers, of the size of the floats, in the order of `torch.sort`: -0.0 equals 0.0, NaN is above inf.

    The largest integer is reserved for padding. The smallest is not used either, so ~key reverses the order.
    """
    bits = x.view(INTEGERS[x.element_size()])
    limits = torch.iinfo(bits.dtype)
    sign = bits >> (limits.bits - 1)  # -1 where negative, else 0
    keys = (bits & limits.max).bitwise_xor_(sign).sub_(sign)  # magnitude, negated where negative
    return keys.masked_fill_(x.isnan(), limits.max - 1) if may_hold_nan else keys


def _source(x: Tensor, case: Case) -> Tensor:
    """Source token of every slot, (B, C, N); a sort along a contiguous axis is several times faster on a CPU."""
    num_tokens = x.shape[2]
    source = torch.arange(num_tokens, device=x.device).expand(x.shape)
    padding = None if case.lengths is None else padded_slots(x.mT, case.lengths).mT
    if case.steps is not None:
        source = _shifted(source, case.steps[:, None], case.lengths)
    if case.group_size == 1:
        return source
    keys = sort_keys(x).gather(2, source)
    if case.descending is not None:
        down = case.descending.T.repeat_interleave(case.group_size if len(case.descending) > 1 else num_tokens, dim=1)
        keys ^= -down[:, :num_tokens].to(keys.dtype)  # True -> all bits set, which reverses the order
    if padding is not None:
        keys.masked_fill_(padding, torch.iinfo(keys.dtype).max)
    source = _sort_windows(source, keys, case.group_size)
    if case.reference:
        ranks = source[:, :1].argsort(dim=2)  # of channel 0 at each slot, numbered over all windows
        source = source.gather(2, ranks.expand_as(source))
    return source


def _shifted(slots: Tensor, steps: Tensor, lengths: Tensor | None) -> Tensor:
    """(slot - step) mod n for the n real tokens of each sample; padding stays in place. -> (B, C, N)."""
    if lengths is None:
        return ((slots[:1] - steps) % slots.shape[2]).expand_as(slots)
    count = lengths[:, None, None]
    return torch.where(slots < count, (slots - steps) % count, slots)


def _sort_windows(source: Tensor, keys: Tensor, size: int) -> Tensor:
    """`source` in stable order of its keys inside each window of `size` slots. (B, C, N) -> (B, C, N)."""
    num_tokens = keys.shape[2]
    tail = -num_tokens % size
    if tail:
        keys = torch.cat([keys, keys.new_full((*keys.shape[:2], tail), torch.iinfo(keys.dtype).max)], dim=2)
        source = torch.cat([source, source[..., :tail]], dim=2)
    order = torch.unflatten(keys, 2, (-1, size)).sort(stable=True).indices
    ordered = torch.unflatten(source, 2, (-1, size)).gather(3, order)
    return ordered.flatten(2)[..., :num_tokens]
