"""The Triton kernels compile for three GPUs without one and keep their limits; studies/gpu.md shows the numbers."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import gpu_kernels
import pytest
from gpu_kernels import REGISTERS, Compilation, Resources

SPILLED = {"bfloat16": 0, "float32": 48}  # bytes of local memory of a thread, windows shorter than LONG
SPILLED_LONG = {"bfloat16": 328, "float32": 424}
LONG = {"bfloat16": 4096, "float32": 16384}  # tokens; on an H100 these were faster than smaller tiles, or the only ones


def check_limits(row: Resources) -> None:
    is_long = row.window is not None and row.window >= LONG[row.dtype]
    assert row.local_bytes <= (SPILLED_LONG if is_long else SPILLED)[row.dtype], row
    assert row.registers * 32 * row.warps <= REGISTERS, row  # else it cannot be launched
    assert row.shared_bytes <= 65536, row


def place(row: Resources | Compilation) -> tuple[object, ...]:
    return (row.kernel, row.dtype, row.window, row.rows, row.columns, row.warps)


def kernels_of_this_machine() -> list[Compilation]:
    """The kernels as they are now; skips where triton has no compiler."""
    triton = pytest.importorskip("triton")
    if "nvidia" not in triton.backends.backends or triton.knobs.runtime.interpret:
        pytest.skip("triton has no compiler for NVIDIA GPUs here")
    return list(gpu_kernels.compilations())


@pytest.fixture
def _empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))


def test_every_kernel_keeps_its_limits_on_every_architecture() -> None:
    for row in gpu_kernels.read():
        check_limits(row)


def test_measurements_are_of_the_tiles_that_the_kernels_pick_now() -> None:
    wanted = {place(kernel) for kernel in kernels_of_this_machine()}
    for architecture in gpu_kernels.SHARED:
        assert {place(row) for row in gpu_kernels.read() if row.architecture == architecture} == wanted


def check_compiles_as_measured(wanted: Compilation, architecture: int) -> None:
    row = gpu_kernels.resources(wanted, architecture)
    check_limits(row)
    if gpu_kernels.measured_with() == gpu_kernels.versions():
        assert asdict(row) in [asdict(other) for other in gpu_kernels.read()], "measure again"


@pytest.mark.usefixtures("_empty_cache")
def test_a_kernel_compiles_as_measured() -> None:
    (wanted,) = (k for k in kernels_of_this_machine() if (k.kernel, k.dtype, k.window) == ("sort_pairs", "bfloat16", 2))
    check_compiles_as_measured(wanted, architecture=90)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.usefixtures("_empty_cache")
@pytest.mark.parametrize("architecture", list(gpu_kernels.SHARED))
def test_all_kernels_compile_as_measured(architecture: int) -> None:
    for wanted in kernels_of_this_machine():
        check_compiles_as_measured(wanted, architecture)


def test_occupancy_is_that_of_the_programming_guide() -> None:
    assert gpu_kernels.occupancy(90, warps=8, registers=32, shared_bytes=0) == 1.0
    assert gpu_kernels.occupancy(90, warps=8, registers=128, shared_bytes=0) == 0.25  # two blocks of 32,768 registers
    assert gpu_kernels.occupancy(90, warps=8, registers=33, shared_bytes=0) == 0.75  # 40 registers, six blocks
    assert gpu_kernels.occupancy(80, warps=4, registers=32, shared_bytes=64 * 1024) == 2 * 4 / 64
    assert gpu_kernels.occupancy(90, warps=4, registers=32, shared_bytes=64 * 1024) == 3 * 4 / 64
    assert gpu_kernels.occupancy(90, warps=1, registers=16, shared_bytes=0) == 0.5  # at most 32 blocks
