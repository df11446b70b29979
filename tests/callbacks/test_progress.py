"""Lines of a run's progress, and its speed."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from sliceformer_lab.callbacks import progress
from sliceformer_lab.callbacks.progress import EpochLines
from sliceformer_lab.callbacks.throughput import Throughput
from sliceformer_lab.measures.call_cost import start_new_peak


@pytest.fixture
def printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., list[str]]:
    """What an epoch of `steps` prints; `moments` are when batches start and end and when the epoch ends."""

    def train(*moments: float, steps: int, num_steps: int, last_step: int | None = None, **facts: object) -> list[str]:
        left = iter(moments)
        monkeypatch.setattr(progress, "time", SimpleNamespace(perf_counter=lambda: next(left)))
        optim = SimpleNamespace(last_step=last_step)
        task = SimpleNamespace(device=torch.device("cpu"), num_steps=num_steps, optim=optim)
        known = {"is_global_zero": True, "current_epoch": 0, "global_step": 0, "callback_metrics": {}}
        trainer: Any = SimpleNamespace(lightning_module=task, **known, **facts)
        lines: Any = EpochLines()
        lines.on_train_start(trainer, task)
        for step in range(steps):
            lines.on_train_batch_start(trainer, task, None, step)
            trainer.global_step = step + 1
            lines.on_train_batch_end(trainer, task, None, None, step)
        lines.on_train_epoch_end(trainer, task)
        return capsys.readouterr().out.splitlines()

    return train


def test_time_left_counts_neither_the_first_step_nor_what_comes_before_it(printed: Callable[..., list[str]]) -> None:
    epochs = {"max_epochs": 31, "fast_dev_run": False}
    within, epoch = printed(100.0, 150.0, 152.0, 152.5, steps=2, num_steps=62, **epochs)
    assert re.fullmatch(r"step 2/62  2.00 s/step, 2:00 min left, \d+\.\d GB", within)
    assert epoch.endswith("5.0 s/epoch, 2:30 min left")


@pytest.mark.parametrize(("one_batch", "left"), [(True, "0:00 min left"), (False, "0:19 min left")])
def test_a_trial_of_one_batch_has_no_time_left(one_batch: bool, left: str, printed: Callable[..., list[str]]) -> None:
    moments, facts = (100.0, 100.5, 100.5), {"max_epochs": 1, "fast_dev_run": one_batch}
    (line,) = printed(*moments, steps=1, num_steps=40, last_step=40, **facts)
    assert line.rstrip().endswith(left)


class Training:
    """What the callback sees of a training in one process."""

    world_size, device = 1, torch.device("cpu")

    def __init__(self) -> None:
        self.logged: dict[str, float] = {}

    def log(self, name: str, value: float, **options: Any) -> None:
        del options
        self.logged[name] = value


@pytest.mark.parametrize(("batches", "has_speed"), [(6, False), (9, False), (10, True)])
def test_a_run_has_a_speed_once_it_has_counted_as_many_batches_as_it_left_out(batches: int, has_speed: bool) -> None:
    callback, training = Throughput(warmup_batches=5), Training()
    callback.on_train_epoch_start(training, training)  # type: ignore[arg-type]
    for number in range(batches):
        callback.on_train_batch_end(training, training, None, [0] * 8, number)  # type: ignore[arg-type]
    callback.on_train_epoch_end(training, training)  # type: ignore[arg-type]
    assert ("train/samples_per_second" in training.logged) == has_speed


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the kernel has no clear_refs")
def test_a_run_s_peak_memory_is_not_that_of_earlier_jobs_of_the_process() -> None:
    training: Any = Training()
    before = bytearray(300_000_000)
    before[::4096] = b"x" * len(before[::4096])
    del before
    callback = Throughput()
    callback.on_fit_start(training, training)
    callback.on_train_epoch_end(training, training)
    now = start_new_peak("cpu")
    assert now is not None and training.logged["train/peak_memory_gb"] < now / 1e9 + 0.2


def test_the_speed_of_a_run_that_goes_on_within_an_epoch_counts_from_its_start() -> None:
    training: Any = Training()
    callback = Throughput(warmup_batches=0)
    callback.on_train_start(training, training)
    callback.on_train_batch_end(training, training, None, [0] * 8, 3)
    callback.on_train_epoch_end(training, training)
    assert training.logged["train/samples_per_second"] > 8, "not 8 examples since the machine started"
