"""Measures time, memory and saved bytes of any call."""

from __future__ import annotations

import ctypes
import gc
import math
import random
import sys
import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from sliceformer_lab.runs.processes import proc_bytes

if sys.platform != "win32":
    import resource

MIN_TIMED_SECONDS = 5e-3  # faster calls are repeated and timed together
MAX_REPEATS = 1000
CLEAR = Path("/proc/self/clear_refs")

Call = Callable[[], object]
Key = TypeVar("Key", bound=Hashable)


def in_turns(calls: Mapping[Key, Call], rounds: int, warmup: int, device: str) -> dict[Key, list[float]]:
    """Seconds of each call in each round; in every round all calls take turns, in a random order.

    A slow phase of the machine affects all calls of a round, so their ratios stay meaningful.
    """
    order = list(calls)
    generator = random.Random(0)
    last: dict[Key, float] = {}
    for _ in range(warmup):
        for key in order:
            last[key] = _time_calls(calls[key], 1, device)
    repeats = {key: min(MAX_REPEATS, max(1, round(MIN_TIMED_SECONDS / last[key]))) for key in order}
    found: dict[Key, list[float]] = {key: [] for key in order}
    gc.disable()  # a collection would slow one of them
    try:
        for _ in range(rounds):
            generator.shuffle(order)
            for key in order:
                found[key].append(_time_calls(calls[key], repeats[key], device))
    finally:
        gc.enable()
    return found


def quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    """Median, first and third quartile."""
    q1, median, q3 = np.quantile(values, (0.25, 0.5, 0.75))
    return float(median), float(q1), float(q3)


def _time_calls(call: Call, repeats: int, device: str) -> float:
    """Mean seconds of `repeats` calls in a row; on a GPU by its own clock, once it is idle."""
    if device == "cuda":
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        torch.cuda.synchronize()
        start.record()
        for _ in range(repeats):
            call()
        end.record()
        torch.cuda.synchronize()
        return float(start.elapsed_time(end)) / 1e3 / repeats
    before = time.perf_counter()
    for _ in range(repeats):
        call()
    return (time.perf_counter() - before) / repeats


class PeakMemory:
    """The peak of allocated memory since construction, minus the memory at construction.

    On CUDA it is the allocator's peak. On Linux it is the growth of the resident set (VmHWM, reset through
    /proc/self/clear_refs), which includes workspaces and freed blocks that the C library keeps. It is unknown on
    kernels without clear_refs.
    """

    def __init__(self, device: str) -> None:
        self._device = device
        self._before = start_new_peak(device)

    @property
    def peak(self) -> int | None:
        """Bytes; None if unknown."""
        peak = peak_memory(self._device)
        return None if self._before is None or peak is None else max(0, peak - self._before)


def start_new_peak(device: str) -> int | None:
    """Lets `peak_memory` forget what was; returns the bytes in use now, None where the kernel has no clear_refs."""
    gc.collect()
    if device == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        return torch.cuda.memory_allocated()
    _release_freed_memory()
    try:
        CLEAR.write_text("5", encoding="ascii")
    except OSError:
        return None
    return proc_bytes("VmRSS")


def peak_memory(device: str) -> int | None:
    """The most bytes in use since `start_new_peak`, or since the process began: allocated on a GPU, else resident.

    None on Windows, where Python cannot ask without a package.
    """
    if device == "cuda":
        return torch.cuda.max_memory_allocated()
    if (resident := proc_bytes("VmHWM")) is not None:
        return resident
    if sys.platform == "win32":
        return None
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def peak_source(device: str) -> str:
    """A description of how `PeakMemory` measures."""
    if device == "cuda":
        return "CUDA allocator peak"
    return "unknown" if PeakMemory(device).peak is None else "growth of the resident set (VmHWM after clear_refs)"


def _release_freed_memory() -> None:
    """Return freed blocks to the system; else the next call reuses them and its memory does not show."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None  # of glibc
    if trim is not None:
        trim(0)


def saved_bytes(forward: Callable[[], Any], parameters: Iterable[Tensor], limit: float = math.inf) -> int:
    """Bytes that autograd saves for the backward pass, without `parameters`; shared storage counts once.

    Raises MemoryError as soon as there are more than `limit`.
    """
    known = {parameter.untyped_storage().data_ptr() for parameter in parameters}
    saved: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in known:
            saved[storage.data_ptr()] = storage.nbytes()
            if sum(saved.values()) > limit:
                raise MemoryError(f"more than {limit:,} bytes")
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        output = forward()  # alive until counted, so that no address is used twice
    del output
    return sum(saved.values())
