"""Times the Triton kernels with many tiles on a GPU, for the choices in `shift_sort/triton_kernels.py`.

usage: python studies/gpu_tiles.py measure    time all tiles and write the table of studies/gpu.md: two minutes on a
                                              GPU, all processor cores
"""

from __future__ import annotations

import itertools
import json
import multiprocessing
import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from marked_sections import with_section
from torch import Tensor

from sliceformer_lab.permute.backend import Case
from sliceformer_lab.permute.schedule import shift_steps
from sliceformer_lab.runs.commit import git_commit
from sliceformer_lab.runs.files import write_json, write_text
from sliceformer_lab.runs.plain_text import markdown_table

STUDIES = Path(__file__).resolve().parent
MEASURED, PAGE = STUDIES / "results" / "gpu_tiles.json", STUDIES / "gpu.md"
BATCH_TOKENS, CHANNELS = 131072, 512  # of a call: 134 MB in bfloat16, more than the caches hold
LENGTHS = (64, 1024, 16384)
SORTED_LENGTHS = (64, 1024, 4096, 16384)
BYTES = {"bfloat16": 2, "float32": 4}
KERNELS = {
    "sort_pairs": "forward, G=2",
    "roll": "backward, G=2",
    "sort_windows": "forward, complete sort",
    "unsort_windows": "backward, complete sort",
}


@dataclass(frozen=True)
class Tiled:
    """A kernel on samples of `tokens` with one tile; `rows` are those of the tile."""

    kernel: str
    dtype: str
    tokens: int
    rows: int
    columns: int
    warps: int


def candidates() -> Iterator[Tiled]:
    """The tiles to try. Few channels and many rows find in the cache what neighbouring channels read."""
    for dtype, columns, warps in itertools.product(BYTES, (16, 32, 64), (1, 2, 4, 8, 16)):
        for tokens, rows in itertools.product(LENGTHS, (1, 2, 4, 8, 16, 32)):
            if rows * columns in (32 * warps, 64 * warps) and rows <= max(1, tokens // 16):
                yield Tiled("sort_pairs", dtype, tokens, rows, columns, warps)
    for dtype, columns, warps in itertools.product(BYTES, (16, 32, 64, 128), (1, 2, 4, 8)):
        for kernel, tokens, elements in itertools.product(("roll", "unsort_windows"), LENGTHS, (256, 512, 1024, 4096)):
            rows = elements // columns
            if rows <= tokens and 2 <= elements // (32 * warps) <= 16:
                yield Tiled(kernel, dtype, tokens, rows, columns, warps)
    for dtype, tokens, keys in itertools.product(BYTES, SORTED_LENGTHS, (1024, 2048, 4096, 8192, 16384)):
        columns = min(64, keys // tokens)
        for keys_of_thread in (8, 16, 32):
            warps = tokens * columns // (keys_of_thread * 32)
            if columns and 1 <= warps <= 32:
                yield Tiled("sort_windows", dtype, tokens, 1, columns, warps)


def pick_tile(kernel: str, dtype: str, tokens: int) -> Tiled:
    """The tile that the backend picks."""
    from sliceformer_lab.permute import triton_kernels as kernels

    if kernel == "sort_windows":
        tile = kernels.sort_tile(tokens, tokens, CHANNELS, BYTES[dtype])
    elif kernel == "sort_pairs":
        tile = kernels.pair_tile(-(-tokens // 16), CHANNELS)
    else:
        tile = kernels.copy_tile(tokens, CHANNELS)
    return Tiled(kernel, dtype, tokens, tile.rows, tile.columns, tile.num_warps)


def call_of(tiled: Tiled, batch_tokens: int, device: str = "cuda") -> Callable[[], Tensor]:
    """A call of the kernel with this tile, on random values, shifted as the attention `csp` does."""
    from sliceformer_lab.permute import triton as backend
    from sliceformer_lab.permute import triton_kernels as kernels

    tile = kernels.Tile(tiled.rows, tiled.columns, tiled.warps)
    batch = max(1, batch_tokens // tiled.tokens)
    generator = torch.Generator(device).manual_seed(0)
    shape = (batch, tiled.tokens, CHANNELS)
    v = torch.randn(shape, generator=generator, device=device).to(getattr(torch, tiled.dtype))
    y = torch.empty_like(v)
    shifts = tiled.kernel in ("sort_pairs", "roll")
    steps = torch.tensor(shift_steps("linear_paper", CHANNELS, tiled.tokens), device=device) if shifts else None
    size = 2 if shifts else tiled.tokens
    case = Case(steps=steps, group_size=size, lengths=None, descending=None, reference=False)
    saved_shape, saved_dtype = backend.BACKEND.saved_layout(v, case)
    saved = torch.zeros(saved_shape, dtype=saved_dtype, device=device)
    if tiled.kernel == "unsort_windows":
        saved = torch.rand(shape, generator=generator, device=device).argsort(1).to(saved_dtype)
    calls: dict[str, Callable[[], None]] = {
        "sort_pairs": lambda: backend._sort_pairs(v, y, saved, case),
        "roll": lambda: backend._roll(v, y, saved, case, backward=True),
        "sort_windows": lambda: backend._sort_windows(v, y, saved, case),
        "unsort_windows": lambda: backend._unsort_windows(v, y, saved, case),
    }

    def call() -> Tensor:
        own = {name: getattr(kernels, name) for name in ("copy_tile", "pair_tile", "sort_tile")}
        try:
            for name in own:
                setattr(kernels, name, lambda *_: tile)
            calls[tiled.kernel]()
        finally:
            for name, tile_of in own.items():
                setattr(kernels, name, tile_of)
        return y

    return call


def compile_tile(tiled: Tiled) -> None:
    """Run a kernel once on one sample, which leaves its machine code in Triton's cache."""
    call_of(tiled, tiled.tokens)()
    torch.cuda.synchronize()


def measure() -> None:
    """Time everything and write studies/results/gpu_tiles.json."""
    from triton import testing

    def milliseconds(call: Callable[[], object]) -> float:
        return round(float(testing.do_bench(call, warmup=4, rep=20, return_mode="median")), 4)

    every = list(dict.fromkeys([*candidates(), *(pick_tile(*place) for place in places())]))
    with ProcessPoolExecutor(max(1, (os.cpu_count() or 1) - 2), multiprocessing.get_context("spawn")) as pool:
        list(pool.map(compile_tile, every, chunksize=4))
    copies = {}
    for dtype in BYTES:
        v = torch.randn(BATCH_TOKENS, CHANNELS, device="cuda", dtype=getattr(torch, dtype))
        copies[dtype] = milliseconds(v.clone)
    rows = [{**asdict(tiled), "ms": milliseconds(call_of(tiled, BATCH_TOKENS))} for tiled in every]
    facts = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "commit": git_commit()}
    write_json(MEASURED, {**facts, "batch_tokens": BATCH_TOKENS, "channels": CHANNELS, "copy_ms": copies, "rows": rows})


def places() -> list[tuple[str, str, int]]:
    """What is timed with many tiles: kernel, type and length."""
    lengths = {kernel: SORTED_LENGTHS if kernel == "sort_windows" else LENGTHS for kernel in KERNELS}
    return [(kernel, dtype, tokens) for kernel in KERNELS for dtype in BYTES for tokens in lengths[kernel]]


def section() -> str:
    """A row for each kernel and length: times over that of a copy, with the tile that is picked and with the best."""
    found = json.loads(MEASURED.read_text(encoding="utf-8"))
    times = {Tiled(**{key: row[key] for key in Tiled.__annotations__}): row["ms"] for row in found["rows"]}
    lines = []
    for kernel, does in KERNELS.items():
        for tokens in SORTED_LENGTHS if kernel == "sort_windows" else LENGTHS:
            cells = [_cells(pick_tile(kernel, dtype, tokens), times, found["copy_ms"][dtype]) for dtype in BYTES]
            lines.append([f"`{kernel}` ({does})", f"{tokens:,}", *itertools.chain(*cells)])
    head = ["kernel", "tokens", *itertools.chain(*([dtype, "best tried"] for dtype in BYTES))]
    copies = ", ".join(f"{ms:.3f} ms in {dtype}" for dtype, ms in found["copy_ms"].items())
    return (
        f"{found['device']}, torch {found['torch']}, commit {found['commit']}, {found['batch_tokens']:,} tokens of "
        f"{found['channels']} channels. A copy takes {copies}.\n\n{markdown_table(head, *lines)}"
    )


def page() -> str:
    """The page with the table between its markers."""
    return with_section(PAGE.read_text(encoding="utf-8"), "tiles", section())


def _cells(tiled: Tiled, times: dict[Tiled, float], copy: float) -> tuple[str, str]:
    of_place = {one: ms for one, ms in times.items() if (one.kernel, one.dtype, one.tokens) == _place(tiled)}
    best = min(of_place, key=of_place.__getitem__)
    mine = of_place.get(tiled)
    shown = "not timed" if mine is None else f"{mine / copy:.1f}"
    warps = "1 warp" if best.warps == 1 else f"{best.warps} warps"
    return shown, f"{of_place[best] / copy:.1f} ({best.rows} x {best.columns}, {warps})"


def _place(tiled: Tiled) -> tuple[str, str, int]:
    return tiled.kernel, tiled.dtype, tiled.tokens


if __name__ == "__main__":
    if sys.argv[1:] != ["measure"]:
        sys.exit(__doc__)
    measure()
    write_text(PAGE, page())
