"""What a backend of `shift_sort` promises, and which of them this machine has.

A backend is one module of this package with an instance called `BACKEND`. Where the backend cannot run, importing its
module raises ImportError whose message is one clause saying why ("the extension is not built").
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Protocol

import torch
from torch import Tensor

log = logging.getLogger(__name__)

NAMES = ("reference", "plain", "cpu", "triton")
_KERNELS = {"cpu": "cpu", "cuda": "triton"}  # of a device; where there is none or it passes, plain takes everything

_forced: str | None = None


@dataclass(frozen=True)
class Case:
    """Everything about a call besides the values. Tensors are contiguous and on the device of the values.

    With n real tokens, slot i of channel c takes token (i - steps[c]) mod n; then windows of `group_size` slots are
    sorted, channel c of window k downwards where descending[k, c]. The sort is stable in both directions, counted in
    slots after the shift; NaN of either sign is the largest value, and -0.0 equals 0.0. With `reference` every channel
    is sorted all the same and its result placed by ranks: slot i of a window takes what the channel's sort puts at
    the rank that slot i has in channel 0.
    """

    steps: Tensor | None  # (C,) int64, at least 0, possibly above n; with reference, steps[0] is 0. None: no shift
    group_size: int  # 1 (shift only) to N; the last window may be short
    lengths: Tensor | None  # (B,) int64, 1 to N. None: N in every sample
    descending: Tensor | None  # bool, (1, C) for all windows or (ceil(N / group_size), C). None: all upwards
    reference: bool


class Backend(Protocol):
    """One implementation of `shift_sort` and its gradient, bit-equal to that of `reference.py`.

    The values come as (B, N, C), contiguous, none of the three 0, in float64, float32, float16 or bfloat16.
    """

    name: str

    def covers(self, v: Tensor, case: Case) -> str | None:
        """None if it takes the case, else why not, in one clause. Looks at shapes, types and devices, never at data.

        `v` may be a fake tensor; only its shape, dtype and device count, so that v, y and grad get one answer.
        """

    def saved_layout(self, v: Tensor, case: Case) -> tuple[tuple[int, ...], torch.dtype]:
        """Shape and type of what backward needs besides the case; as little as possible, never the values.

        The format is the backend's own, but does not depend on the dtype of `v` where `backward` is concerned.
        """

    def forward(self, v: Tensor, case: Case, save: bool) -> tuple[Tensor, Tensor]:
        """(B, N, C) -> new contiguous (B, N, C), 0 on padding, and `saved`: as in `saved_layout`, or, without `save`,
        `nothing_saved(v)`. Autograd is off.
        """

    def backward(self, grad: Tensor, saved: Tensor, case: Case) -> Tensor:
        """Gradient of the values from that of the result: contiguous (B, N, C) -> new contiguous (B, N, C).

        0 on padding, whatever `grad` holds there. `grad` may be float32 where `v` was not (second derivatives).
        """


def nothing_saved(v: Tensor) -> Tensor:
    """What `forward` returns as `saved` when no gradient is asked for."""
    return v.new_empty(0, dtype=torch.uint8)


@cache
def _load(name: str) -> Backend | str:
    """A backend, or why this machine lacks it."""
    try:
        backend: Backend = import_module(f"{__package__}.{name}").BACKEND
    except ImportError as error:
        return str(error)
    return backend


def load_backend(name: str) -> Backend:
    """The backend of this name. Raises ValueError if it does not exist or cannot run here."""
    if name not in NAMES:
        raise ValueError(f"there is no backend {name!r}; choose from {', '.join(NAMES)}")
    if isinstance(found := _load(name), str):
        raise ValueError(f"backend {name} cannot run here: {found}; this machine has {', '.join(available_backends())}")
    return found


def available_backends() -> tuple[str, ...]:
    """Names of the backends that this machine has."""
    return tuple(name for name in NAMES if not isinstance(_load(name), str))


def missing_backends() -> dict[str, str]:
    """Why this machine lacks the others, by name."""
    return {name: found for name in NAMES if isinstance(found := _load(name), str)}


@contextmanager
def use_backend(name: str) -> Iterator[None]:
    """Force one backend inside the `with`, in this process, for all threads; code that was compiled recompiles.

    Raises ValueError for a backend that does not exist here; `shift_sort` raises it for a case that it cannot take.
    """
    global _forced
    load_backend(name)
    before, _forced = _forced, name
    try:
        yield
    finally:
        _forced = before


def forced_backend() -> str | None:
    """The backend that `use_backend` forces at present."""
    return _forced


def choose(v: Tensor, case: Case, forced: str | None) -> Backend:
    """The backend that takes this case: `forced`, or else the kernel of the device of `v`, or else plain.

    Raises ValueError if the forced one cannot take it.
    """
    if forced is not None:
        backend = load_backend(forced)
        if reason := backend.covers(v, case):
            raise ValueError(f"backend {forced} does not take this case: {reason}")
        return backend
    name = _KERNELS.get(v.device.type)
    if name is not None:
        found = _load(name)
        reason = found if isinstance(found, str) else found.covers(v, case)
        if reason is None and not isinstance(found, str):
            return found
        _log_once(f"shift_sort runs on {v.device.type} without backend {name}: {reason}")
    return load_backend("plain")


@cache
def _log_once(message: str) -> None:
    log.debug(message)
