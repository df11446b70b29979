"""Runs that last `steps`: when they validate, which examples they see, and how they resume."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from itertools import chain, count, pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from support.plans import run
from support.run_folders import read_summary
from support.runs import assert_equal_runs, mark_interrupted, small_config
from torch import Tensor

from sliceformer_lab.__main__ import main
from sliceformer_lab.batch import Batch
from sliceformer_lab.data import loader
from sliceformer_lab.data.loader import LoaderPosition, PassSampler, Split, evaluation_batch_size
from sliceformer_lab.errors import ConfigError
from sliceformer_lab.runs.folder import read_checkpoint
from sliceformer_lab.training import timing
from sliceformer_lab.training.saved.saved_run import load_run

STEPS = ("optim.epochs=null", "optim.steps=22", "data.batch_size=16", "trainer.log_every_n_steps=1")  # 128 examples
STRETCHES = (*STEPS, "optim.val_every=9", "encoder.dropout=0.1")


@pytest.fixture(scope="module")
def by_stretches(uninterrupted: Callable[..., Path]) -> Path:
    return uninterrupted(*STRETCHES)


def validated_after(folder: Path) -> list[int]:
    """The number of steps before each validation."""
    metrics = load_run(folder).metrics
    return [int(step) + 1 for step in metrics["step"][metrics["val/accuracy"].notna()]]


def test_run_validates_every_val_every_steps_and_after_the_last(by_stretches: Path) -> None:
    assert validated_after(by_stretches) == [9, 18, 22]
    last = read_checkpoint(by_stretches / "checkpoints" / "last.ckpt")
    assert last["global_step"] == 22
    summary = read_summary(by_stretches)
    assert summary["best"]["step"] in (9, 18, 22)
    scores = load_run(by_stretches).metrics["val/accuracy"].dropna()
    assert summary["metrics"]["val/accuracy"] == pytest.approx(max(scores))
    assert (summary["protocol"]["steps"], summary["protocol"]["epochs"]) == (22, None)


def test_run_without_val_every_validates_after_every_pass_and_the_last_step(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(small_config(*STEPS), tmp_path)
    assert validated_after(tmp_path) == [8, 16, 22]
    printed = capsys.readouterr().out
    assert [line.split()[1] for line in printed.splitlines() if line.startswith("step ")] == ["8/22", "16/22", "22/22"]
    assert "steps/s" in printed and "of 22 (best_val)" in printed


def test_run_stopped_between_its_last_step_and_scoring_makes_no_more_steps(by_stretches: Path, tmp_path: Path) -> None:
    copy = mark_interrupted(shutil.copytree(by_stretches, tmp_path / "copy"))
    assert main([f"resume={copy}"]) == 0
    assert_equal_runs(by_stretches, copy)


def weights(folder: Path) -> dict[str, Tensor]:
    state: dict[str, Tensor] = read_checkpoint(folder / "checkpoints" / "last.ckpt")["state_dict"]
    return {name: part for name, part in state.items() if part.is_floating_point()}


def test_accumulated_batches_make_the_step_of_one_batch(tmp_path: Path) -> None:
    """One batch of 32 or two of 16 give the same step. A pass over 120 examples drops the last 24."""
    length = ("optim.epochs=null", "optim.steps=11", "optim.val_every=4")
    common = ("data.limit_train=120", "optim.optimizer=sgd", "optim.lr=0.1", "optim.warmup_steps=0", *length)
    pieces, whole = tmp_path / "pieces", tmp_path / "whole"
    run(small_config(*common, "data.batch_size=16", "optim.accumulate=2"), pieces)
    run(small_config(*common, "data.batch_size=32"), whole)
    torch.testing.assert_close(weights(pieces), weights(whole), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("words", "per_pass"), [(("trainer.limit_train_batches=0.5", "optim.accumulate=2"), 2), (("optim.max_steps=5",), 8)]
)
def test_the_estimate_of_a_run_counts_the_steps_that_it_makes(
    words: tuple[str, ...], per_pass: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("data.limit_train=120", "data.batch_size=16", *words)
    run(small_config(*words), tmp_path)
    steps = read_summary(tmp_path)["steps"]
    assert steps["planned"] == steps["trained"]
    seconds = count()
    monkeypatch.setattr(timing, "time", SimpleNamespace(perf_counter=lambda: next(seconds)))  # a second for each step
    pretrained = small_config("pretrain=masked", "pretrain.epochs=1", *words)
    assert timing.measured_cost(pretrained, limit=10)[0] == steps["trained"] + per_pass


Rows = list[list[int]]  # examples of each stretch or pass


class Numbers(Split):
    """Examples that are numbers."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def subset(self, rows: np.ndarray) -> Numbers:
        return Numbers(len(rows))

    def lengths(self) -> np.ndarray:
        return np.arange(self.count) % 7

    def batch(self, rows: list[int]) -> Batch:
        raise NotImplementedError


class DistinctLengths(Numbers):
    """Examples whose lengths all differ."""

    def lengths(self) -> np.ndarray:
        return np.arange(self.count)


def sampled(split: Split, count: int, *, stretch: int | None, batch_size: int, start: int = 0, **options: Any) -> Rows:
    """The examples of each of `count` stretches of batches (None: passes) from the step `start`."""
    step = 1 if stretch is None else stretch // options.get("accumulate", 1)
    steps = iter(range(start, 10_000, step))
    sampler = PassSampler(
        split,
        shuffle=True,
        place=lambda: LoaderPosition(next(steps), 0),
        run_seed=0,
        batch_size=batch_size,
        steps_per_epoch=None if stretch is None else step,
        **options,
    )
    found = []
    for _ in range(count):
        sampler.start_pass()
        found.append(list(sampler))
        assert len(found[-1]) == len(sampler)
    return found


@pytest.mark.parametrize(("pool_share", "pool", "repeated"), [(1.0, 203, 1), (0.15, 30, 0), (0.01, 10, 0)])
def test_small_data_are_not_sorted_by_length_as_a_whole(pool_share: float, pool: int, repeated: float) -> None:
    """Sorted as a whole, an example would meet the same others in every pass."""
    passes = sampled(DistinctLengths(203), 4, stretch=None, batch_size=10, pool_share=pool_share)
    orders = sampled(DistinctLengths(203), 4, stretch=None, batch_size=10)
    batches = [[frozenset(rows[i : i + 10]) for i in range(0, 203, 10)] for rows in passes]
    for found, rows in zip(batches, orders, strict=True):
        by_length = list(chain(*(sorted(rows[i : i + pool]) for i in range(0, 203, pool))))
        assert set(found) == {frozenset(by_length[i : i + 10]) for i in range(0, 203, 10)} and len(found[-1]) == 3
    assert [len({*one} & {*other}) / 21 for one, other in pairwise(batches)] == [repeated] * 3


def seen(stretches: int, *, stretch: int = 3, **options: Any) -> list[int]:
    """The examples of a number of stretches, in batches of 4."""
    found = sampled(Numbers(22), stretches, stretch=stretch, batch_size=4, **options)
    assert {len(part) for part in found} == {4 * stretch}
    return list(chain(*found))


@pytest.mark.parametrize(("processes", "accumulate", "share"), [(1, 1, 22), (1, 2, 16), (3, 1, 7)])
def test_a_pass_has_all_examples_that_processes_can_share_or_those_of_whole_steps(
    processes: int, accumulate: int, share: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = []
    for rank in range(processes):
        monkeypatch.setattr(loader, "rank_and_world_size", lambda rank=rank: (rank, processes))
        rows += sampled(Numbers(22), 1, stretch=None, batch_size=4, accumulate=accumulate)
    assert [len(part) for part in rows] == [share] * processes and len(set(chain(*rows))) == share * processes


@pytest.mark.parametrize("pool_share", [None, 0.5, 1.0])
@pytest.mark.parametrize(("stretch", "accumulate", "pass_len"), [(3, 1, 20), (7, 1, 20), (4, 2, 16), (12, 2, 16)])
def test_passes_continue_across_stretches(
    pool_share: float | None, stretch: int, accumulate: int, pass_len: int
) -> None:
    rows = seen(10, pool_share=pool_share, stretch=stretch, accumulate=accumulate)
    passes = [rows[i : i + pass_len] for i in range(0, len(rows) - pass_len + 1, pass_len)]
    assert len(passes) >= 5
    assert all(len(set(part)) == pass_len for part in passes)  # no example twice
    assert len({tuple(part) for part in passes}) == len(passes)


def test_a_stretch_depends_only_on_its_first_step() -> None:
    assert seen(5)[3 * 12 :] == seen(2, start=9)


def test_processes_share_stretches(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = seen(4, stretch=2, accumulate=2)
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    shares = []
    for rank in range(2):
        monkeypatch.setattr(torch.distributed, "get_rank", lambda rank=rank: rank)
        shares.append(seen(4, stretch=1))
    together = [row for pair in zip(*shares, strict=True) for row in pair]
    assert together[:16] == alone[:16]  # of the same first pass


def test_data_that_do_not_fill_a_step_are_refused() -> None:
    for stretch in (6, None):
        with pytest.raises(ConfigError, match=r"22 training examples do not fill a step of 24 .*optim.accumulate=6"):
            sampled(Numbers(22), 1, stretch=stretch, batch_size=4, accumulate=6)


@pytest.mark.parametrize("processes", [1, 2, 3])
@pytest.mark.parametrize("wanted", [1, 2, 4])
def test_all_processes_evaluate_as_many_batches_as_each_other(
    processes: int, wanted: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for examples in range(processes, 40):
        batches, rows = [], []
        for rank in range(processes):
            monkeypatch.setattr(loader, "rank_and_world_size", lambda rank=rank: (rank, processes))
            size = evaluation_batch_size(examples, wanted)
            assert size == wanted or examples % processes
            share = [*PassSampler(Numbers(examples), shuffle=False, place=None, run_seed=0, batch_size=size)]
            batches.append(-(-len(share) // size))
            rows += share
        assert len({*batches}) == 1 and sorted(rows) == [*range(examples)], f"{examples} examples"
    monkeypatch.setattr(loader, "rank_and_world_size", lambda: (0, 64))
    with pytest.raises(ConfigError, match=r"64 processes cannot share 9 examples; use trainer.devices=9"):
        evaluation_batch_size(9, wanted)
