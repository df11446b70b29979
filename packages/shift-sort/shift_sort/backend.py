"""The contract of a backend of `shift_sort`, and the backends of this machine.

A backend is one module of this package with an instance called `BACKEND`. If the backend cannot run, importing its
module raises an ImportError whose message is one clause with the reason ("the extension is not built").
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

log = logging.getLogger(__name__)

NAMES = ("reference", "plain", "cpu", "triton")
_KERNELS = {"cpu": "cpu", "cuda": "triton"}  # by device; plain takes every other case

_forced: str | None = None


class Case(NamedTuple):
    """The arguments of a call besides the values. Tensors are contiguous and on the device of the values.

    With n real tokens, slot i of channel c takes token (i - steps[c]) mod n. Then windows of `group_size` slots are
    sorted, channel c of window k downwards if descending[k, c]. The sort is stable in both directions, in the order of
    the slots after the shift; NaN of either sign is the largest value, and -0.0 equals 0.0. With `reference` every
    channel is sorted as well and the result placed by ranks: slot i of a window takes the channel's value of rank r,
    where r is the rank of slot i in channel 0.
    """

    steps: Tensor | None  # (C,) int64, at least 0, possibly above n; with reference, steps[0] is 0. None: no shift
    group_size: int  # 1 (shift only) to N; the last window may be short
    lengths: Tensor | None  # (B,) int64, 1 to N. None: N in every sample
    descending: Tensor | None  # bool, (1, C) for all windows or (ceil(N / group_size), C). None: all upwards
    reference: bool


class Backend(Protocol):
    """One implementation of `shift_sort` and its gradient, bit-equal to that of `reference.py`.

    The values are contiguous (B, N, C), each size at least 1, in float64, float32, float16 or bfloat16.
    """

    name: str

    def covers(self, v: Tensor, case: Case) -> str | None:
        """None if the backend takes the case, else the reason in one clause.

        Reads only shape, dtype and device of `v`, which may be a fake tensor, so v, y and grad have one answer.
        """

    def saved_layout(self, v: Tensor, case: Case) -> tuple[tuple[int, ...], torch.dtype]:
        """Shape and type of the tensor that `forward` saves for `backward`; small, and never the values.

        The format is the backend's own. `backward` must be able to read it whatever the dtype of `v` was.
        """

    def forward(self, v: Tensor, case: Case, save: bool) -> tuple[Tensor, Tensor]:
        """(B, N, C) -> new contiguous (B, N, C), 0 on padding, and the saved tensor.

        The saved tensor has the layout of `saved_layout`, or is `nothing_saved(v)` without `save`. Autograd is off.
        """

    def backward(self, grad: Tensor, saved: Tensor, case: Case) -> Tensor:
        """Gradient of the values from that of the result: contiguous (B, N, C) -> new contiguous (B, N, C).

        0 on padding, whatever `grad` holds there. `grad` may be float32 if `v` was not (second derivatives).
        """


def nothing_saved(v: Tensor) -> Tensor:
    """The saved tensor of a call that needs no gradient."""
    return v.new_empty(0, dtype=torch.uint8)


@cache
def _load(name: str) -> Backend | str:
    """A backend, or the reason why it cannot run on this machine."""
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
    """The reasons why the other backends cannot run on this machine, by name."""
    return {name: found for name in NAMES if isinstance(found := _load(name), str)}


@contextmanager
def use_backend(name: str) -> Iterator[None]:
    """Forces one backend inside the `with`, for all threads of this process; compiled code recompiles.

    Raises ValueError for a backend that cannot run here; `shift_sort` raises it for a case that the backend cannot
    take.
    """
    global _forced
    load_backend(name)
    before, _forced = _forced, name
    try:
        yield
    finally:
        _forced = before


def forced_backend() -> str | None:
    """The backend that `use_backend` currently forces."""
    return _forced


def choose(v: Tensor, case: Case, forced: str | None) -> Backend:
    """The backend for this case: `forced`, else the kernel for the device of `v`, else plain.

    Raises ValueError if the forced backend cannot take the case.
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
        level = logging.WARNING if isinstance(found, str) else logging.DEBUG
        _log_once(level, f"shift_sort runs on {v.device.type} without backend {name}: {reason}")
    return load_backend("plain")


@cache
def _log_once(level: int, message: str) -> None:
    log.log(level, message)
