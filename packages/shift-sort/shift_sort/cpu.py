"""The compiled CPU backend, which calls the kernel of csrc/ through its C interface."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

import torch
from torch import Tensor

from .backend import Case, nothing_saved

ISAS = ("portable", "avx2", "avx512")  # instruction sets, slowest first, in the numbering of csrc/dispatch.cpp
_DTYPES = {torch.float64: 0, torch.float32: 1, torch.float16: 2, torch.bfloat16: 3}
_INTERFACE = 1  # version of the interface in csrc/dispatch.cpp
_ILLEGAL = 3  # its status for numbers out of range
_LIBRARY = Path(__file__).with_name("_shift_sort.so")


class _Call(ctypes.Structure):
    """The struct `ShiftSort` of csrc/shift_sort.h."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("input", "out", "saved", "steps", "lengths", "descending")),
        *((name, ctypes.c_int64) for name in ("num_samples", "num_tokens", "num_channels", "group_size")),
        *((name, ctypes.c_int32) for name in ("direction_rows", "reference", "dtype", "saved_bytes")),
    )


def open_library(path: Path) -> ctypes.CDLL:
    """The loaded extension. Raises ImportError with the reason if it is missing or of another version."""
    rebuild = "`pip install -e .` with a C++ compiler builds it"
    if not path.exists():
        raise ImportError(f"the extension is not built; {rebuild}")
    try:
        library = ctypes.CDLL(str(path))
        found = library.shift_sort_interface()
    except (OSError, AttributeError) as error:
        raise ImportError(f"the extension does not load ({error}); {rebuild}") from error
    if found != _INTERFACE:
        raise ImportError(f"the extension has interface {found}, not {_INTERFACE}; {rebuild}")
    return library


class CpuBackend:
    """Runs blocks of channels on up to `torch.get_num_threads()` threads, without Python's lock."""

    name = "cpu"

    def __init__(self, library: ctypes.CDLL, isa: str | None = None) -> None:
        """Raises ValueError if this machine lacks the instruction set `isa`; None means the fastest one it has."""
        self.library = library
        self.isas = tuple(name for number, name in enumerate(ISAS) if library.shift_sort_has(number))
        self.isa = isa or self.isas[-1]
        if self.isa not in self.isas:
            raise ValueError(f"SLICEFORMER_ISA is {isa!r}, but this machine has {', '.join(self.isas)}")

    def covers(self, v: Tensor, case: Case) -> str | None:
        if not v.is_cpu:
            return f"it runs on the CPU, not on {v.device.type}"
        if v.dtype not in _DTYPES:
            return f"it takes float64, float32, float16 and bfloat16, not {v.dtype}"
        if v.shape[1] >= 2**31:
            return "it numbers tokens in 32 bits"
        if v.element_size() == 2 and case.group_size > 2**16:
            return f"it sorts up to 65536 tokens of {v.dtype}"
        return None

    def saved_layout(self, v: Tensor, case: Case) -> tuple[tuple[int, ...], torch.dtype]:
        num_samples, num_tokens, num_channels = v.shape
        if case.group_size == 1:
            return (0,), torch.uint8
        if case.group_size == 2:
            return (num_samples, num_tokens // 2, -(-num_channels // 8)), torch.uint8
        if case.group_size <= 256:
            return tuple(v.shape), torch.uint8
        return tuple(v.shape), torch.int16 if num_tokens <= 2**15 else torch.int32

    def forward(self, v: Tensor, case: Case, save: bool) -> tuple[Tensor, Tensor]:
        if save:
            shape, dtype = self.saved_layout(v, case)
            saved = torch.empty(shape, dtype=dtype)
        else:
            saved = nothing_saved(v)
        y = torch.empty_like(v)
        self._run(self.library.shift_sort_forward, v, y, saved, case)
        return y, saved

    def backward(self, grad: Tensor, saved: Tensor, case: Case) -> Tensor:
        grad_v = torch.empty_like(grad)
        shape, dtype = self.saved_layout(grad, case)
        _address(saved, "saved", shape, dtype)
        self._run(self.library.shift_sort_backward, grad, grad_v, saved, case)
        return grad_v

    def _run(self, function: ctypes._NamedFuncPointer, source: Tensor, out: Tensor, saved: Tensor, case: Case) -> None:
        """Calls the kernel. Raises ValueError for arguments with which it would leave its tensors."""
        num_samples, num_tokens, num_channels = source.shape
        windows = -(-num_tokens // case.group_size)
        descending = case.descending
        rows = 0 if descending is None else len(descending)
        call = _Call(
            _address(source, "values", source.shape, *_DTYPES),
            out.data_ptr(),
            saved.data_ptr(),  # 0 if it has no numbers
            _address(case.steps, "steps", (num_channels,), torch.int64),
            _address(case.lengths, "lengths", (num_samples,), torch.int64),
            _address(descending, "descending", (windows if rows > 1 else 1, num_channels), torch.bool),
            num_samples,
            num_tokens,
            num_channels,
            case.group_size,
            rows,
            case.reference,
            _DTYPES[source.dtype],
            0 if case.group_size <= 2 else saved.element_size(),
        )
        status = function(ctypes.byref(call), ISAS.index(self.isa), torch.get_num_threads())
        if status == _ILLEGAL:
            raise ValueError(
                f"steps must be at least 0, lengths and group_size 1 to {num_tokens}, got steps {case.steps}, "
                f"lengths {case.lengths} and group_size {case.group_size}"
            )
        if status != 0:
            raise MemoryError(f"the CPU kernel could not allocate memory for {tuple(source.shape)}")


def _address(tensor: Tensor | None, name: str, shape: tuple[int, ...], *dtypes: torch.dtype) -> int | None:
    """Where the numbers of a tensor begin. Raises ValueError if they are not those that the kernel expects."""
    if tensor is None:
        return None
    if tensor.shape != shape or tensor.dtype not in dtypes or not tensor.is_cpu or not tensor.is_contiguous():
        raise ValueError(
            f"{name} must be contiguous on the CPU, {shape} of {' or '.join(str(d) for d in dtypes)}, "
            f"got {tuple(tensor.shape)} {tensor.dtype} on {tensor.device}"
        )
    return tensor.data_ptr()


BACKEND = CpuBackend(open_library(_LIBRARY), os.environ.get("SLICEFORMER_ISA"))
