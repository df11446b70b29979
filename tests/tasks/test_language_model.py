"""The language model: bits of each character, refusals, and n-grams beside it."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from support import task_modules
from support.official_files import book
from support.plans import small_task
from torch.testing import assert_close

from sliceformer_lab.batch import Batch
from sliceformer_lab.config.checked import check_config
from sliceformer_lab.config.compose import compose_job
from sliceformer_lab.config.schema import ConfigError
from sliceformer_lab.data.base import DataModule
from sliceformer_lab.tasks.language_model import LanguageModel
from sliceformer_lab.training.results.references import references


@pytest.fixture
def data(tmp_path: Path) -> DataModule:
    return task_modules.ready("text_lm", tmp_path)


def model(data: DataModule, attention: str = "mha") -> LanguageModel:
    task: LanguageModel = small_task("task=text_lm", f"attention={attention}", data=data.spec)
    return task


def test_no_logit_depends_on_the_character_it_predicts(data: DataModule) -> None:
    task, batch = model(data), data.splits["val"].batch([0, 1])
    changed = batch.inputs.clone()
    changed[:, 7:] = 1
    with torch.no_grad():
        assert_close(task(Batch(changed, batch.target, batch.ids))[:, :7], task(batch)[:, :7])


def test_saved_bits_are_those_of_the_targets_and_give_both_metrics(data: DataModule) -> None:
    task, batch = model(data), data.splits["val"].batch([0, 1])
    with torch.no_grad():
        output = task(batch)
        bits = task.predicted(batch)
    expected = -output.softmax(dim=2).gather(2, batch.target[..., None])[..., 0].log2()
    assert_close(bits, expected)
    metrics = task.build_metrics()
    metrics.update(bits, batch.target)
    scores = metrics.compute()
    assert_close(scores["bits_per_token"], expected.mean())
    assert_close(scores["perplexity"], 2 ** expected.mean())
    assert_close(task.evaluation_loss(output, batch.target), expected.mean() * math.log(2))


def test_chance_is_the_entropy_of_the_targets(data: DataModule) -> None:
    assert model(data).chance(torch.tensor([[1, 1], [2, 3]])) == pytest.approx(1.5)


def test_an_attention_that_looks_ahead_is_refused_with_those_that_do_not(data: DataModule) -> None:
    with pytest.raises(ConfigError) as refused:
        model(data, "csp")
    reason, _, able = str(refused.value).partition("; attentions that can: ")
    assert reason == "book predicts each token from those before it, which CSP cannot take"
    assert {"mha", "csp_causal", "csp_causal_sliding", "identity"} <= set(able.split(", "))


def test_references_are_counts_scored_on_the_same_windows(data: DataModule) -> None:
    predictions = {
        stage: {
            "ids": (ids := torch.arange(len(data.splits[stage]))),
            "targets": data.splits[stage].targets_at(ids.tolist()),
        }
        for stage in ("val", "test")
    }
    rows = references(check_config(compose_job([])), data, model(data), predictions, run_seconds=0)
    assert [row["name"] for row in rows[:2]] == ["token frequencies", "bigrams"] and rows[2]["name"].startswith(
        "n-grams"
    )
    bits = [row["metrics"]["test/bits_per_token"] for row in rows]
    assert bits[0] > bits[1] > bits[2]
    assert bits[0] > model(data).chance(predictions["test"]["targets"]) - 1e-6
    val_only = model(data).more_references(data, {"val": predictions["val"]})
    assert [row["name"] for row in val_only] == [row["name"] for row in rows]


def test_a_text_file_trains_from_the_command_line_and_reports_bits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from sliceformer_lab.__main__ import main

    words = ["task=text_lm", f"data.file={book(tmp_path)}", "data.max_len=16", "encoder=tiny", "attention=csp_causal"]
    assert main([*words, "optim.steps=2", "optim.val_every=2", "callbacks=minimal", f"paths.outputs={tmp_path}"]) == 0
    assert "test/bits_per_token" in capsys.readouterr().out
