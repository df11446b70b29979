"""Every command that scores a test set adds a line to the ledger beside the data."""

from __future__ import annotations

from pathlib import Path

import pytest

from sliceformer_lab.__main__ import main
from sliceformer_lab.runs.ledger import attention_digest, read_ledger

TINY = ("task=digits", "attention=identity", "encoder=tiny", "optim.epochs=1", "data.limit_train=64")


def test_training_and_scoring_again_count_and_a_run_without_a_test_score_does_not(tmp_path: Path) -> None:
    words = [*TINY, "optim.warmup_steps=0", "callbacks=minimal", "pictures=false", "reference=null"]
    places = [f"paths.data={tmp_path / 'data'}", f"paths.outputs={tmp_path / 'out'}"]
    assert main([*words, *places, "score_test=false"]) == 0
    assert read_ledger(tmp_path / "data") == []
    assert main([*words, *places, "seed=1"]) == 0
    (one,) = read_ledger(tmp_path / "data")
    assert (
        (one.task, one.attention, one.seed) == ("digits", "identity", 1) and one.fingerprint and Path(one.run).is_dir()
    )
    assert main(["mode=eval", f"resume={one.run}", f"paths.data={tmp_path / 'data'}"]) == 0
    assert [each.run for each in read_ledger(tmp_path / "data")] == [one.run, one.run]


def test_other_options_of_an_attention_are_another_attention_and_a_width_that_a_budget_sets_is_not() -> None:
    digests = {attention_digest({"attention": {"group_size": size, "inner_mult": 1}}) for size in (2, 4)}
    assert len(digests) == 2
    assert attention_digest({"attention": {"group_size": 2, "inner_mult": 2}}) in digests


@pytest.mark.parametrize("line", ["{", "[1]", '{"task": 1}'])
def test_a_damaged_line_is_left_out(tmp_path: Path, line: str) -> None:
    (tmp_path / "test_ledger.jsonl").write_text(line + "\n")
    assert read_ledger(tmp_path) == []
