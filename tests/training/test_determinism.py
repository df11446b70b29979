"""What decides the result of a run: its seed, and nothing of the machine but rounding."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from support.plans import run
from support.runs import NOISE, assert_equal_runs, small_config

from sliceformer_lab.runs.folder import read_checkpoint


@pytest.fixture(scope="module")
def folder(uninterrupted: Callable[..., Path]) -> Path:
    return uninterrupted(*NOISE)


@pytest.fixture
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def test_the_same_seed_gives_the_same_bits(folder: Path, tmp_path: Path) -> None:
    run(small_config(*NOISE), tmp_path)
    assert_equal_runs(folder, tmp_path)


def test_the_number_of_data_workers_changes_no_bit(folder: Path, tmp_path: Path) -> None:
    run(small_config(*NOISE, "data.num_workers=2"), tmp_path)
    assert_equal_runs(folder, tmp_path)


@pytest.mark.usefixtures("threads")
def test_the_number_of_threads_changes_rounding_only(folder: Path, tmp_path: Path) -> None:
    torch.set_num_threads(2 if torch.get_num_threads() == 1 else 1)
    run(small_config(*NOISE), tmp_path)
    weights = [read_checkpoint(place / "checkpoints" / "last.ckpt")["state_dict"] for place in (folder, tmp_path)]
    torch.testing.assert_close(*weights, rtol=0, atol=1e-5)
