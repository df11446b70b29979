"""The script that times tiles runs every kernel, and its table in studies/gpu.md is of the tiles of today."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from typing import Any

import gpu_tiles
import pytest
import torch
from gpu_tiles import KERNELS, Tiled
from torch import Tensor

pytest.importorskip("triton")


def results(tiles: list[Tiled]) -> list[tuple[Tensor, Any]]:
    """What the kernels give with these tiles, and the tiles that were launched."""
    from sliceformer_lab.permute import triton as backend

    torch.set_num_threads(1)
    gpu_tiles.CHANNELS = 128  # the interpreter is slow
    launch, launched = backend._launch, []

    def record(kernel: Any, tile: Any, *args: Any, **constants: Any) -> None:
        launched.append(tile)
        launch(kernel, tile, *args, **constants)

    backend._launch = record  # in a process of its own
    values = [gpu_tiles.call_of(tiled, 2 * tiled.tokens, "cpu")() for tiled in tiles]
    return list(zip(values, launched, strict=True))


@pytest.mark.slow
def test_each_kernel_runs_with_the_given_tile_and_its_values_do_not_depend_on_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tiles = [gpu_tiles.pick_tile(kernel, "bfloat16", 64) for kernel in KERNELS]
    tiles += [replace(tiled, columns=tiled.columns * 2, warps=2) for tiled in tiles]
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        found = pool.submit(results, tiles).result()
    for (one, _), (other, _) in zip(found[: len(KERNELS)], found[len(KERNELS) :], strict=True):
        assert one.abs().sum() > 0
        torch.testing.assert_close(one, other, rtol=0, atol=0)
    launched = [(tile.rows, tile.columns, tile.num_warps) for _, tile in found]
    assert launched == [(tiled.rows, tiled.columns, tiled.warps) for tiled in tiles]


def test_every_tile_that_is_tried_is_one_of_the_kernels_that_the_table_shows() -> None:
    tried = set(gpu_tiles.candidates())
    assert {(one.kernel, one.dtype, one.tokens) for one in tried} == set(gpu_tiles.places())


def test_the_table_is_of_the_tiles_that_the_kernels_pick_now() -> None:
    assert "not timed" not in gpu_tiles.section()
