"""Every task has a committed run that learned, or a reason; the tables follow from the runs."""

from __future__ import annotations

import re
from itertools import islice
from pathlib import Path
from types import SimpleNamespace

import evidence
import numpy as np
import pytest
from evidence_baselines import shallow_values
from evidence_runs import REASONS, ROWS
from stand_ins import STAND_INS
from support.run_folders import write_run

from sliceformer_lab.data.sequences.expressions import distinct, source_of
from sliceformer_lab.errors import DataError

RESULTS = evidence.read(evidence.STUDY)


def test_every_task_has_a_run_that_learned_or_a_reason() -> None:
    assert set(evidence.untrained(RESULTS)) <= set(REASONS)
    assert set(REASONS) <= set(evidence.tasks())


def test_committed_runs_are_those_of_the_rows() -> None:
    waiting = set(ROWS) - {result["setting"] for result in RESULTS}
    assert waiting <= set(REASONS)
    for result in RESULTS:
        assert result["command"] == ROWS[result["setting"]].command(result["attention"])


def test_a_finished_run_of_another_command_is_no_evidence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evidence, "OUTPUT", tmp_path)
    name, row = next((name, row) for name, row in ROWS.items() if name.partition("-")[0] not in STAND_INS)
    command = [*row.command(row.attention, source=str(tmp_path), made=str(tmp_path / "made"))]
    write_run(tmp_path / "runs" / f"{name}-{row.attention}", row.attention, command=command[:-1])
    with pytest.raises(DataError, match=f"a run without {re.escape(command[-1])}; remove it"):
        evidence.run_all(tmp_path, [name])


def test_the_rule_for_listops_has_its_committed_score_and_ignores_nested_lists() -> None:
    examples = list(islice(distinct(0, 10, 100, 1), 11_000))  # 2,000 for testing come first, 8,000 for training last
    texts, labels = [source_of(ids) for ids, _ in examples], [label for _, label in examples]
    found = shallow_values(texts[3_000:], labels[3_000:], [*texts[:2_000], "[SM 7 8 [MAX 1 9 ] ]"])
    assert found[-1] == 5
    score = float(np.mean(np.array(found[:-1]) == labels[:2_000]))
    committed = {run["baseline"]["score"] for run in RESULTS if run["task"] == "lra_listops"}
    assert committed == {score}


def test_interval_of_a_perfect_score_has_a_width() -> None:
    predictions = {"test_logits": 9 * np.eye(2, dtype=np.float16)[[0, 1] * 20], "test_targets": np.array([0, 1] * 20)}
    run = SimpleNamespace(predictions=predictions, model=SimpleNamespace(monitor="accuracy"))
    # Wilson's lower limit of 40 of 40 is 40 / (40 + 1.96**2)
    assert evidence.interval(run, "test") == pytest.approx((40 / 43.8415, 1.0), abs=1e-4)
