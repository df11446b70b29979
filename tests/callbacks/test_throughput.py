"""The training speed of a run is that of many batches."""

from __future__ import annotations

from typing import Any

import pytest

from sliceformer_lab.callbacks.throughput import Throughput


class Training:
    """What the callback sees of a training in one process."""

    world_size = 1

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
