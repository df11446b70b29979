"""What a training step needs, before the first one."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from support.plans import build_data, build_task, run
from support.runs import small_config

from sliceformer_lab.errors import MachineError
from sliceformer_lab.training import step_estimate


def test_a_step_that_does_not_fit_is_refused_with_what_would(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_estimate, "physical_memory", lambda: 5_000_000)
    with pytest.raises(MachineError, match=r"step of 128 .*; try data.batch_size=\d+ optim.accumulate=\d+"):
        run(small_config("attention=mha", "data.batch_size=512"), tmp_path / "run")


def test_estimating_a_step_changes_neither_the_model_nor_the_random_numbers() -> None:
    config = small_config("attention=mha", "encoder.dropout=0.5")
    data = build_data(config)
    task = build_task(config, data.spec)
    before, random = {k: v.clone() for k, v in task.state_dict().items()}, torch.get_rng_state()
    step_estimate.check_step_memory(task, data, "cpu")
    torch.testing.assert_close(task.state_dict(), before, rtol=0, atol=0)
    assert torch.equal(torch.get_rng_state(), random)
    assert all(parameter.grad is None for parameter in task.parameters())


def test_the_longest_example_is_estimated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    table = tmp_path / "texts.csv"
    table.write_text("text,label\n" + "".join(f"{'x ' * (1 + 7 * n % 50)},{n % 2}\n" for n in range(60)))
    config = small_config("task=text_csv", f"data.file={table}", f"paths.data={tmp_path}")
    data = build_data(config)
    monkeypatch.setattr(step_estimate, "SLOW", 0.0)
    caplog.set_level("INFO")
    step_estimate.check_step_memory(build_task(config, data.spec), data, "cpu")
    assert f" of {data.splits['train'].lengths().max()} tokens takes" in caplog.text
