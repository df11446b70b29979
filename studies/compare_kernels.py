"""Is a new CPU kernel faster than an old one? Complete sorts with both, in turns in one process.

usage: python studies/compare_kernels.py OLD_SHIFT_SORT.so NEW_SHIFT_SORT.so

Each commit builds its own library: `git worktree add OLD COMMIT`, then `python setup.py build_ext --inplace` there
leaves `OLD/packages/shift-sort/shift_sort/_shift_sort.so`. Their results are compared first and must be equal.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median, quantiles
from time import thread_time

import torch
from torch import Tensor

from sliceformer_lab.permute.backend import Case
from sliceformer_lab.permute.cpu import CpuBackend, open_library

SHAPES = ((64, 64, 512), (8, 1024, 256), (2, 4096, 256), (1, 16384, 128))  # (B, N, C)
DTYPES = (torch.float32, torch.bfloat16)
ROUNDS = 15
PARTS = ("sort, order saved", "backward", "sort alone")


def seconds(backend: CpuBackend, v: Tensor, grad: Tensor, case: Case) -> tuple[float, float, float]:
    """Processor seconds of PARTS. Shapes: v and grad (B, N, C)."""
    start = thread_time()
    _, saved = backend.forward(v, case, save=True)
    sorted_at = thread_time()
    backend.backward(grad, saved, case)
    returned_at = thread_time()
    backend.forward(v, case, save=False)
    return sorted_at - start, returned_at - sorted_at, thread_time() - returned_at


def compare(old: CpuBackend, new: CpuBackend, shape: tuple[int, int, int], dtype: torch.dtype, rounds: int) -> str:
    """One line: processor time with the new kernel over that with the old one, as median (quartiles), for each part.

    Raises ValueError if the two kernels do not agree.
    """
    generator = torch.Generator().manual_seed(0)
    v, grad = (torch.randn(shape, generator=generator).to(dtype) for _ in range(2))
    case = Case(steps=None, group_size=shape[1], lengths=None, descending=None, reference=False)
    results = []
    for backend in (old, new):
        y, saved = backend.forward(v, case, save=True)
        results.append((y, saved, backend.backward(grad, saved, case)))
    if not all(torch.equal(*pair) for pair in zip(*results, strict=True)):
        raise ValueError(f"the kernels do not agree on {shape} {dtype}")
    ratios = []
    for _ in range(rounds):
        before, after = (seconds(backend, v, grad, case) for backend in (old, new))
        ratios.append([b / a for a, b in zip(before, after, strict=True)])
    cells = [f"{name} {_spread(column)}" for name, column in zip(PARTS, zip(*ratios, strict=True), strict=True)]
    return f"{shape[1]} tokens, {str(dtype).removeprefix('torch.')}: " + "; ".join(cells)


def _spread(ratios: Sequence[float]) -> str:
    low, _, high = quantiles(ratios, n=4)
    return f"{median(ratios):.2f} ({low:.2f}-{high:.2f})"


def main() -> None:
    if len(sys.argv) != 3:
        sys.exit("usage: python studies/compare_kernels.py OLD_SHIFT_SORT.so NEW_SHIFT_SORT.so")
    torch.set_num_threads(1)
    try:
        old, new = (CpuBackend(open_library(Path(path))) for path in sys.argv[1:])
    except ImportError as error:
        sys.exit(f"compare_kernels: {error}")
    sys.stdout.write(f"new / old; {new.isa}, one thread, load {os.getloadavg()[0]:.1f}\n")
    for dtype in DTYPES:
        for shape in SHAPES:
            sys.stdout.write(compare(old, new, shape, dtype, ROUNDS) + "\n")


if __name__ == "__main__":
    main()
