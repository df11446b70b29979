"""Registers, local and shared memory, and occupancy of every Triton kernel, compiled without a GPU.

python studies/gpu_kernels.py measure    compile all kernels for sm_80, sm_90 and sm_100 and write the table of
                                         studies/gpu.md: 3 to 10 minutes

A kernel is compiled with all its options (padding, shift, directions), that is, at its largest. `measure` needs
triton, which torch's Linux packages for CUDA bring along, with its own ptxas and cuobjdump.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from marked_sections import with_section

from sliceformer_lab.runs.files import write_json, write_text
from sliceformer_lab.runs.plain_text import markdown_table

STUDIES = Path(__file__).resolve().parent
MEASURED, PAGE = STUDIES / "results" / "gpu_kernels.json", STUDIES / "gpu.md"
CHANNELS = 512
WINDOWS = (4, 32, 64, 256, 1024, 4096, 8192, 16384)  # of sort_windows, in tokens
BYTES = {"bfloat16": 2, "float32": 4}  # float16 has the code of bfloat16
SHARED = {80: 163, 90: 227, 100: 227}  # KB of shared memory that one block may have
WARPS, REGISTERS = 64, 65536  # of a multiprocessor of these three
RESERVED = 1  # KB of shared memory that the system takes for each block


@dataclass(frozen=True)
class Compilation:
    """A kernel for one type of values, with the tile and the constants that its launch chooses."""

    kernel: str
    dtype: str
    window: int | None  # slots; None: any
    rows: int
    columns: int
    warps: int
    saved: str  # Triton's type of the tensor `saved`
    constants: Mapping[str, Any]


@dataclass(frozen=True)
class Resources:
    """What one compiled kernel takes on one architecture."""

    kernel: str
    dtype: str
    window: int | None
    architecture: int  # 80 for sm_80
    rows: int
    columns: int
    warps: int
    registers: int  # of a thread
    local_bytes: int  # of a thread: registers that did not fit
    shared_bytes: int  # of a block
    occupancy: float  # share of a multiprocessor's 64 warps that run at once


def compilations() -> Iterator[Compilation]:
    """Every kernel with the tiles that it picks for 512 channels."""
    from sliceformer_lab.permute import triton_kernels as kernels

    for dtype, itemsize in BYTES.items():
        infinity = {2: 0x7F80, 4: 0x7F800000}[itemsize]
        copy, pairs = kernels.copy_tile(1024, CHANNELS), kernels.pair_tile(1024, CHANNELS)
        moved = (copy.rows, copy.columns, copy.num_warps)
        yield Compilation("roll", dtype, 2, *moved, "u8", {"backward": True})
        yield Compilation(
            "sort_pairs", dtype, 2, pairs.rows, pairs.columns, pairs.num_warps, "u8", {"infinity": infinity}
        )
        yield Compilation("unsort_windows", dtype, None, *moved, "i16", {})
        for window in WINDOWS:
            tile = kernels.sort_tile(window, max(window, 1024), CHANNELS, itemsize)
            constants = {"infinity": infinity, "width": (window - 1).bit_length()}
            saved = "u8" if window <= 256 else "i16"
            sizes = (tile.rows, tile.columns, tile.num_warps)
            yield Compilation("sort_windows", dtype, window, *sizes, saved, constants)


def resources(wanted: Compilation, architecture: int) -> Resources:
    """Compile a kernel for an architecture, without a GPU, and read what it takes from the machine code."""
    from triton import compile as compile_kernel
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from sliceformer_lab.permute import triton_kernels

    kernel = getattr(triton_kernels, wanted.kernel)
    bits = {2: "i16", 4: "i32"}[BYTES[wanted.dtype]]
    pointers = {"values": bits, "out": bits, "grad": bits, "saved": wanted.saved, "swaps": "u8", "descending": "i1"}
    pointers |= {"steps": "i64", "lengths": "i64"}
    constants = {**wanted.constants, "rows": wanted.rows, "columns": wanted.columns}
    signature: dict[str, str] = {}
    attributes: dict[tuple[int], list[list[Any]]] = {}
    for place, name in enumerate(kernel.arg_names):
        if name in constants:
            signature[name] = "constexpr"
            continue
        signature[name] = f"*{pointers[name]}" if name in pointers else "i32"
        if name in (*pointers, "num_channels", "descending_stride"):  # as a launch specialises 512 channels
            attributes[place,] = [["tt.divisibility", 16]]
    source = ASTSource(kernel, signature, constants, attributes)
    options = {"num_warps": wanted.warps, "enable_fp_fusion": False}
    compiled = compile_kernel(source, target=GPUTarget("cuda", architecture, 32), options=options)
    registers, stack = _read_cubin(compiled.asm["cubin"])
    shared = int(compiled.metadata.shared)
    return Resources(
        *(wanted.kernel, wanted.dtype, wanted.window, architecture, wanted.rows, wanted.columns, wanted.warps),
        *(registers, stack, shared, occupancy(architecture, wanted.warps, registers, shared)),
    )


def occupancy(architecture: int, warps: int, registers: int, shared_bytes: int) -> float:
    """The share of a multiprocessor's warps that run at once; registers are given to warps in units of 256.

    Source: CUDA programming guide, technical specifications of compute capabilities 8.0, 9.0 and 10.0.
    """
    by_registers = REGISTERS // (-(-registers * 32 // 256) * 256) // warps
    by_shared = (SHARED[architecture] + RESERVED) * 1024 // (shared_bytes + RESERVED * 1024)
    return min(by_registers, by_shared, WARPS // warps, 32) * warps / WARPS


def _read_cubin(cubin: bytes) -> tuple[int, int]:
    """Registers and bytes of local memory of a thread."""
    import triton

    program = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with TemporaryDirectory() as folder:
        file = Path(folder) / "kernel.cubin"
        file.write_bytes(cubin)
        printed = subprocess.run([program, "-res-usage", file], capture_output=True, text=True, check=True).stdout
    found = re.search(r"REG:(\d+) STACK:(\d+) .*?LOCAL:(\d+)", printed)
    if found is None:
        raise ValueError(f"cuobjdump names no registers: {printed}")
    return int(found[1]), int(found[2]) + int(found[3])


def measure() -> None:
    """Compile everything and write studies/results/gpu_kernels.json."""
    rows = []
    with TemporaryDirectory() as folder:
        os.environ["TRITON_CACHE_DIR"] = folder
        for wanted in compilations():
            rows += [asdict(resources(wanted, architecture)) for architecture in SHARED]
            print(rows[-1], flush=True)  # noqa: T201 - it takes minutes
    write_json(MEASURED, {"versions": versions(), "channels": CHANNELS, "rows": rows})


def versions() -> dict[str, str]:
    """What the numbers depend on besides the kernels; triton brings its own ptxas."""
    return {"triton": version("triton")}


def read() -> list[Resources]:
    """The committed measurements."""
    return [Resources(**row) for row in json.loads(MEASURED.read_text(encoding="utf-8"))["rows"]]


def measured_with() -> dict[str, str]:
    """The versions of the committed measurements."""
    found: dict[str, str] = json.loads(MEASURED.read_text(encoding="utf-8"))["versions"]
    return found


def table() -> str:
    """A row for each kernel and window; a cell for each type and architecture."""
    rows = read()
    places = [(dtype, architecture) for dtype in BYTES for architecture in SHARED]
    header = ["kernel", "window", *(f"{dtype}, sm_{architecture}" for dtype, architecture in places)]
    lines = []
    for kernel, window in dict.fromkeys((row.kernel, row.window) for row in rows):
        found = {(row.dtype, row.architecture): row for row in rows if (row.kernel, row.window) == (kernel, window)}
        lines.append([f"`{kernel}`", "any" if window is None else f"{window:,}", *(_cell(found[p]) for p in places)])
    return markdown_table(header, *lines)


def _cell(row: Resources) -> str:
    spilled = f", **{row.local_bytes} B**" if row.local_bytes else ""
    return f"{row.registers}{spilled}, {100 * row.occupancy:.0f} %"


def page() -> str:
    """The page with the table between its markers."""
    return with_section(PAGE.read_text(encoding="utf-8"), "kernels", table())


if __name__ == "__main__":
    if sys.argv[1:] != ["measure"]:
        sys.exit(__doc__)
    measure()
    write_text(PAGE, page())
