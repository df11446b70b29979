"""Answers at single tokens: what is asked decides loss and accuracy, and only the attention carries information."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from support.plans import build_data, run, small_task
from torch.nn import functional

from sliceformer_lab.batch import Batch
from sliceformer_lab.config.compose import compose_job, preset_job
from sliceformer_lab.data.probes.generators import PROBES
from sliceformer_lab.runs.folder import read_checkpoint
from sliceformer_lab.tasks.token_answers import AnswerAccuracy, TokenAnswers


def task_and_batch(probe: str, attention: str = "mha", **options: int) -> tuple[TokenAnswers, Batch]:
    composed = preset_job(f"task=probe_{probe}")
    data = build_data(composed | {"data": composed["data"] | options})
    data.setup()
    task: TokenAnswers = small_task(f"task=probe_{probe}", f"attention={attention}", data=data.spec)
    return task, data.splits["train"].batch([0, 1, 2, 3])


def test_only_asked_tokens_count_in_loss_and_accuracy() -> None:
    task, batch = task_and_batch("back")
    output = task(batch)
    expected = functional.cross_entropy(output[:, 5:].flatten(0, 1), batch.inputs[:, :-5].flatten())
    torch.testing.assert_close(task.loss(output, batch.target), expected)
    answers, metric = batch.target.clone(), AnswerAccuracy()
    answers[:, :5] = 0  # not asked
    answers[0, 6] = answers[0, 6] + 1
    assert float(metric(answers, batch.target)) == pytest.approx(1 - 1 / (4 * 27))


def test_number_is_right_if_no_other_order_statistic_is_nearer() -> None:
    task, batch = task_and_batch("rank", max_len=3)
    target = torch.tensor([[-1.0, 0.0, 1.0]])
    output = torch.tensor([[[-0.6], [0.6], [5.0]]])
    one = Batch(batch.inputs[:1], target, torch.tensor([0]))
    answers = task.kept(output, one)
    torch.testing.assert_close(answers, torch.tensor([[0, 2, 2]]))
    assert float(AnswerAccuracy()(answers, target)) == pytest.approx(2 / 3)
    torch.testing.assert_close(task.loss(output, target), functional.mse_loss(output[..., 0], target))


def test_key_and_value_of_a_token_are_added() -> None:
    task, batch = task_and_batch("recall", "identity")
    seen: list[torch.Tensor] = []
    task.encoder.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    task(batch)
    table = task.embedding.tokens.weight
    torch.testing.assert_close(seen[0], table[batch.inputs[..., 0]] + table[batch.inputs[..., 1]])


@pytest.mark.parametrize("probe", PROBES)
def test_without_mixing_an_answer_depends_on_its_own_token_only(probe: str) -> None:
    task, batch = task_and_batch(probe, "identity")
    other = batch.inputs.flip(0).clone()
    other[:, -1] = batch.inputs[:, -1]
    changed = task(Batch(other, batch.target, batch.ids))
    torch.testing.assert_close(changed[:, -1], task(batch)[:, -1], rtol=0, atol=0)
    assert not torch.equal(changed, task(batch))


def test_run_stops_at_the_wanted_score_and_records_floors_steps_and_lengths(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    words = "task=probe_recall attention=mha data.level=easy data.num_test=200 data.test_lengths=[16,32]"
    run(compose_job([*words.split(), "optim.stop_at=0.01", "optim.val_every=2", "optim.steps=6"]), tmp_path)
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["steps_to_stop_at"] == 2 and summary["steps"] == {"planned": 6, "trained": 2}
    assert summary["chance"] == 1 / 16 and summary["bag_level"] == pytest.approx(0.337, abs=1e-3)
    assert set(summary["accuracy_at_length"]) == {"16", "32"}
    assert f"test, 32 tokens │ {summary['accuracy_at_length']['32']:.4f}" in capfd.readouterr().out
    by = summary["accuracy_by"]
    assert by["group"] == "distance" and set(by["values"]) <= {str(d) for d in range(1, 16)}
    assert summary["protocol"]["sequence_length"] == 32 and "num_train" not in summary["protocol"]
    assert read_checkpoint(tmp_path / "checkpoints" / "last.ckpt")["stopped_at"] == 2


@pytest.mark.slow
@pytest.mark.parametrize("probe", PROBES)
def test_identity_stays_at_chance(probe: str, tmp_path: Path) -> None:
    run(compose_job([f"task=probe_{probe}", "attention=identity", "optim.steps=150", "optim.val_every=150"]), tmp_path)
    summary = json.loads((tmp_path / "summary.json").read_text())
    chance = summary["chance"]
    assert summary["metrics"]["test/accuracy"] <= chance + 3 * (chance * (1 - chance) / 4096) ** 0.5
