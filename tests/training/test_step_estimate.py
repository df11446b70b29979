"""What a training step needs, before the first one."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from support.plans import build_data, build_task, run
from support.runs import small_config
from torch import Tensor
from torch.nn import Parameter

from sliceformer_lab.errors import MachineError
from sliceformer_lab.training import step_estimate


def test_a_step_that_does_not_fit_is_refused_with_what_would(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_estimate, "physical_memory", lambda: 5_000_000)
    config = small_config("attention=mha", "data.batch_size=512", "reference=null")
    with pytest.raises(MachineError, match=r"step of 512 .*; try data.batch_size=\d+ optim.accumulate=\d+"):
        run(config, tmp_path / "run")


def test_estimating_a_step_changes_neither_the_model_nor_the_random_numbers() -> None:
    config = small_config("attention=mha", "encoder.dropout=0.5")
    data = build_data(config)
    task = build_task(config, data.spec)
    before, random = {k: v.clone() for k, v in task.state_dict().items()}, torch.get_rng_state()
    step_estimate.check_step_memory(task, data, "cpu")
    torch.testing.assert_close(task.state_dict(), before, rtol=0, atol=0)
    assert torch.equal(torch.get_rng_state(), random)
    assert all(parameter.grad is None for parameter in task.parameters())


def test_what_the_first_pass_imports_is_no_time_of_a_step(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    config = small_config("attention=mha")
    data = build_data(config)
    measure = step_estimate.saved_bytes

    def measure_slowly(passes: Callable[[], Tensor], parameters: Iterator[Parameter], limit: int) -> int:
        time.sleep(0.2)  # as if the first pass imported something: times 64 examples it is more than SLOW
        return measure(passes, parameters, limit)

    monkeypatch.setattr(step_estimate, "saved_bytes", measure_slowly)
    with caplog.at_level(logging.INFO):
        step_estimate.check_step_memory(build_task(config, data.spec), data, "cpu")
    assert not any("a step of" in line for line in caplog.messages)
