"""A comparison that is given again finds its own runs, trains nothing, and says what it said."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from support.comparisons import audit
from support.written_runs import Words, WrittenRuns

pytestmark = pytest.mark.usefixtures("unwritten_pictures")

Table = Mapping[float, tuple[float, ...]]  # scores of the seeds 0, 1, 2, by learning rate
MOVED_INSIDE: Table = {  # seeds 0 and 1 choose the largest rate, seed 2 one inside
    0.001: (0.7, 0.7, 0.7),
    0.002: (0.75, 0.75, 0.75),
    0.003: (0.88, 0.8, 0.8),
    0.01: (0.86, 0.85, 0.84),
    0.03: (0.87, 0.87, 0.9),
}
MOVED_TO_THE_EDGE: Table = {  # seeds 0 and 1 choose .003, and seed 2 the largest rate
    0.001: (0.7, 0.7, 0.7),
    0.002: (0.75, 0.75, 0.75),
    0.003: (0.8, 0.88, 0.8),
    0.01: (0.85, 0.82, 0.86),
}
IDENTITY = {0.001: 0.7, 0.002: 0.74, 0.003: 0.8, 0.01: 0.7}


def audit_scores(folder: Path, table: Table) -> tuple[dict[str, Any], list[str]]:
    """The results.json of an audit of csp with these scores against no mixing, and the runs that it made."""

    def accuracy(words: Words) -> float:
        rate, seed = float(words["optim.lr"]), int(words["seed"])
        if words["attention"] == "identity":
            return IDENTITY.get(rate, 0.4) + 0.001 * (seed % 4)
        scores = table.get(rate, (0.3,) * 3)
        return scores[seed] if seed < 100 else scores[2] + 0.001 * (seed % 3)

    launcher = WrittenRuns(accuracy)
    return audit(folder, launcher), launcher.done


@pytest.mark.parametrize("table", [MOVED_INSIDE, MOVED_TO_THE_EDGE])
def test_an_audit_given_again_makes_no_run_and_has_the_same_trials_and_verdict(tmp_path: Path, table: Table) -> None:
    first, made = audit_scores(tmp_path, table)
    again, made_again = audit_scores(tmp_path, table)
    assert any(name.startswith("trial") and name.endswith("seed2") for name in made) and made_again == []
    ledger = "evaluations_of_this_test_set"
    assert first | {ledger: None} == again | {ledger: None}


def test_the_sentence_counts_the_extensions_that_took_place(tmp_path: Path) -> None:
    found, _ = audit_scores(tmp_path, MOVED_TO_THE_EDGE)
    assert found["chosen"]["csp"]["rate"] == 0.01 and len(found["trials"]["csp"]) == 4
    assert (
        "; the best learning rate is the smallest or largest tried: csp" in found["sentence"]
        and "extension" not in found["sentence"]
    )
    rising = {rate: (0.7 + 0.1 * rate,) * 3 for rate in (0.01, 0.03, 0.1, 0.3, 1.0)}
    found, _ = audit_scores(tmp_path / "rising", rising)
    assert "; the best learning rate is the smallest or largest tried after 2 extensions: csp" in found["sentence"]
