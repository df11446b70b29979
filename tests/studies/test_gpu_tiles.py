"""The script that times tiles runs every kernel, and its table in studies/gpu.md is of the tiles of today."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace

import gpu_tiles
import pytest
import torch
from gpu_tiles import KERNELS, PAGE, Tiled
from marked_sections import section
from torch import Tensor

pytest.importorskip("triton")


def results(tiles: list[Tiled]) -> list[Tensor]:
    torch.set_num_threads(1)
    gpu_tiles.CHANNELS = 128  # the interpreter is slow
    return [gpu_tiles.call_of(tiled, 2 * tiled.tokens, "cpu")() for tiled in tiles]


@pytest.mark.slow
def test_the_values_do_not_depend_on_the_tile(monkeypatch: pytest.MonkeyPatch) -> None:
    tiles = [gpu_tiles.chosen(kernel, "bfloat16", 64) for kernel in KERNELS]
    tiles += [replace(tiled, columns=tiled.columns * 2, warps=2) for tiled in tiles]
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        found = pool.submit(results, tiles).result()
    for one, other in zip(found[: len(KERNELS)], found[len(KERNELS) :], strict=True):
        assert one.abs().sum() > 0
        torch.testing.assert_close(one, other, rtol=0, atol=0)


def test_every_tile_that_is_tried_is_one_of_the_kernels_that_the_table_shows() -> None:
    tried = set(gpu_tiles.candidates())
    assert {(one.kernel, one.dtype, one.tokens) for one in tried} == set(gpu_tiles.places())


def test_the_table_is_of_the_tiles_that_the_kernels_pick_now() -> None:
    assert section(PAGE.read_text(encoding="utf-8"), "tiles") == gpu_tiles.section()
    assert "not timed" not in gpu_tiles.section()
