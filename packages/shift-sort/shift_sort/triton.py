"""`shift_sort` on CUDA GPUs with the kernels of `triton_kernels`; slowly on the CPU with TRITON_INTERPRET=1.

Bit-equal to the reference in Triton's interpreter, on an H100, whose times chose the tiles, and on an H200.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .backend import Case, nothing_saved

try:
    import triton

    from . import triton_kernels as kernels
except ImportError as error:
    raise ImportError("the package triton is not installed") from error

INTERPRETED = triton.knobs.runtime.interpret
if not (INTERPRETED or torch.cuda.is_available()):
    raise ImportError("there is no CUDA GPU, and TRITON_INTERPRET=1 is not set")

_BITS = {2: torch.int16, 4: torch.int32}  # bytes of a float -> integer of its bits
_INFINITY = {torch.float16: 0x7C00, torch.bfloat16: 0x7F80, torch.float32: 0x7F800000}  # bits of inf
_MAX_SAMPLE = 2**31 - 1


class TritonBackend:
    """The Triton kernels as a backend."""

    name = "triton"

    def covers(self, v: Tensor, case: Case) -> str | None:
        device = "cpu" if INTERPRETED else "cuda"
        if v.device.type != device:
            return f"it runs on {device} here, but the values are on {v.device.type}"
        if v.dtype not in _INFINITY:
            return f"it has no keys for {v.dtype}"
        if case.group_size > kernels.MAX_WINDOW:
            return f"it sorts windows of up to {kernels.MAX_WINDOW:,} tokens, not {case.group_size:,}"
        if v.shape[1] * v.shape[2] > _MAX_SAMPLE:
            return f"it numbers the values of a sample in 32 bits, but this one has {v.shape[1]:,} x {v.shape[2]:,}"
        return None

    def saved_layout(self, v: Tensor, case: Case) -> tuple[tuple[int, ...], torch.dtype]:
        batch, num_tokens, channels = v.shape
        if case.group_size == 1:
            return (0,), torch.uint8
        if _sorts_pairs(case):
            return (batch, -(-num_tokens // 16), channels), torch.uint8
        return (batch, num_tokens, channels), torch.uint8 if case.group_size <= 256 else torch.int16

    def forward(self, v: Tensor, case: Case, save: bool) -> tuple[Tensor, Tensor]:
        y = torch.empty_like(v)
        shape, dtype = self.saved_layout(v, case)
        saved = torch.empty(shape, dtype=dtype, device=v.device) if save or case.reference else None
        if case.group_size == 1:
            _roll(v, y, None, case, backward=False)
        elif _sorts_pairs(case):
            _sort_pairs(v, y, saved, case)
        else:
            _sort_windows(v, y, saved, case)
            if case.reference and saved is not None:
                ranks = _ranks_of_first_channel(saved, case.group_size)[:, :, None].expand_as(y)
                y, saved = y.gather(1, ranks), saved.gather(1, ranks)
        return y, saved if save and saved is not None else nothing_saved(v)

    def backward(self, grad: Tensor, saved: Tensor, case: Case) -> Tensor:
        out = torch.empty_like(grad)
        if case.group_size == 1:
            _roll(grad, out, None, case, backward=True)
        elif _sorts_pairs(case):
            _roll(grad, out, saved, case, backward=True)
        else:
            _unsort_windows(grad, out, saved, case)
        return out


BACKEND = TritonBackend()


def _sorts_pairs(case: Case) -> bool:
    return case.group_size == 2 and not case.reference


def _bits(values: Tensor) -> Tensor:
    return values.view(_BITS[values.element_size()])


def _ranks_of_first_channel(saved: Tensor, size: int) -> Tensor:
    """The final slot of each slot's value of channel 0. (B, N, C) places -> (B, N)."""
    slots = torch.arange(saved.shape[1], device=saved.device)
    came_from = slots // size * size + saved[:, :, 0]
    return torch.empty_like(came_from).scatter_(1, came_from, slots.expand_as(came_from))


def _launch(kernel: Any, tile: kernels.Tile, num_rows: int, values: Tensor, *args: Any, **constants: Any) -> None:
    """Runs one program for each tile of each sample. The last arguments of every kernel are the sizes added here."""
    batch, num_tokens, channels = values.shape
    row_tiles, channel_tiles = -(-num_rows // tile.rows), -(-channels // tile.columns)
    with torch.cuda.device(values.get_device()):
        kernel[(batch * row_tiles * channel_tiles,)](
            *args,
            num_tokens,
            channels,
            channel_tiles,
            row_tiles,
            rows=tile.rows,
            columns=tile.columns,
            num_warps=tile.num_warps,
            **constants,
        )


def _direction(case: Case) -> tuple[Tensor | None, int]:
    """The directions, and the stride between those of two windows."""
    if case.descending is None:
        return None, 0
    return case.descending, case.descending.stride(0) if len(case.descending) > 1 else 0


def _roll(values: Tensor, out: Tensor, swaps: Tensor | None, case: Case, *, backward: bool) -> None:
    num_tokens, channels = values.shape[1:]
    arguments = (_bits(values), _bits(out), swaps, case.steps, case.lengths)
    _launch(kernels.roll, kernels.copy_tile(num_tokens, channels), num_tokens, values, *arguments, backward=backward)


def _sort_pairs(v: Tensor, y: Tensor, saved: Tensor | None, case: Case) -> None:
    num_octets = -(-v.shape[1] // 16)
    arguments = (_bits(v), _bits(y), saved, case.steps, case.lengths, *_direction(case))
    tile = kernels.pair_tile(num_octets, v.shape[2])
    _launch(kernels.sort_pairs, tile, num_octets, v, *arguments, infinity=_INFINITY[v.dtype])


def _sort_windows(v: Tensor, y: Tensor, saved: Tensor | None, case: Case) -> None:
    num_tokens, channels = v.shape[1:]
    size = case.group_size
    arguments = (_bits(v), _bits(y), saved, case.steps, case.lengths, *_direction(case), size)
    tile = kernels.sort_tile(size, num_tokens, channels, v.element_size())
    constants = {"infinity": _INFINITY[v.dtype], "width": (size - 1).bit_length()}
    _launch(kernels.sort_windows, tile, -(-num_tokens // size), v, *arguments, **constants)


def _unsort_windows(grad: Tensor, out: Tensor, saved: Tensor, case: Case) -> None:
    num_tokens, channels = grad.shape[1:]
    arguments = (_bits(grad), _bits(out), saved, case.steps, case.lengths, case.group_size)
    _launch(kernels.unsort_windows, kernels.copy_tile(num_tokens, channels), num_tokens, grad, *arguments)
