"""The sentence of a comparison claims no more than its runs show."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from support.comparisons import audit, page_of
from support.written_runs import Words, WrittenRuns

from sliceformer_lab.commands.compare import equal_time, steps
from sliceformer_lab.commands.compare.compare_page import which_p
from sliceformer_lab.commands.compare.compare_rows import ComparedRow
from sliceformer_lab.commands.compare.equal_time import Times
from sliceformer_lab.commands.compare.sentences import format_p, is_public
from sliceformer_lab.commands.compare.verdicts import Pairs, judge_rows
from sliceformer_lab.commands.map import map_runs
from sliceformer_lab.commands.map.map_options import MapOptions
from sliceformer_lab.errors import NoVerdictError
from sliceformer_lab.measures.statistics import estimate_crossed
from sliceformer_lab.training.timing import StepTime

pytestmark = pytest.mark.usefixtures("unwritten_pictures")

UNTESTED = "not better than no mixing, so this task at this size does not test an operator"


def peaked(words: Words, best: float = 0.9) -> float:
    """Best at 3e-3; reporting seeds differ a little."""
    return best - (0.0 if words["optim.lr"] == "0.003" else 0.1) + 0.001 * (int(words["seed"]) % 3)


def test_only_an_equivalent_row_without_mixing_says_that_the_task_tests_no_operator(tmp_path: Path) -> None:
    def equal_but_for_seeds(words: Words) -> float:
        return peaked(words) + (0.0005 * (-1) ** int(words["seed"]) if words["attention"] == "csp" else 0.0)

    equal = audit(tmp_path / "equal", WrittenRuns(equal_but_for_seeds))
    assert equal["outcomes"][0]["verdict"] == "equivalent" and UNTESTED in equal["sentence"]
    assert "no result" not in equal["sentence"]

    def undecided(words: Words) -> float:
        return peaked(words) + (0.05 * (int(words["seed"]) % 2) if words["attention"] == "csp" else 0.0)

    open_ = audit(tmp_path / "open", WrittenRuns(undecided))
    assert open_["outcomes"][0]["verdict"] == "undecided"
    assert "; not shown to be better than no mixing" in open_["sentence"] and UNTESTED not in open_["sentence"]


def test_a_verdict_of_a_few_batches_is_called_no_result(tmp_path: Path) -> None:
    tried = audit(tmp_path, WrittenRuns(peaked), words=("encoder=tiny", "debug=fast"))
    assert tried["sentence"].startswith("digits (a trial of a few batches, no result), ")


def test_untuned_runs_that_diverge_count_as_chance_and_are_counted(tmp_path: Path) -> None:
    def accuracy(words: Words) -> float | None:
        is_untuned = "optim.lr" not in words
        return None if is_untuned and int(words["seed"]) > 100 else peaked({"optim.lr": "0.003", **words})

    audit(tmp_path, WrittenRuns(accuracy), untuned=True)
    (row,) = [line for line in page_of(tmp_path).splitlines() if line.startswith("| csp | ")][:1]
    assert "| 23.18 (5 at chance) |" in row  # (89.1 + 5 * 10) / 6


def test_a_number_that_only_another_axis_has_is_named_with_that_axis(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse_identity(rows: Sequence[ComparedRow]) -> int:
        for row in rows:
            row.ways = () if row.name == "identity" else ((),)
            row.axis_words |= {} if row.name == "identity" else {"params": ()}
            row.refused |= {"params": "no width has these parameters"} if row.name == "identity" else {}
        return 100_000

    times = Times(dict.fromkeys(("csp", "identity", "mha"), StepTime(1.0, 0.01)), 152, False, 19, 0.1, "here", None)
    monkeypatch.setattr(equal_time, "measure_times", lambda _: times)
    monkeypatch.setattr(steps, "solve_ways", refuse_identity)
    best = {"csp": 0.9, "identity": 0.7}

    def score(words: Words) -> float:
        spread = 1e-5 * (int(words["seed"]) % 3) if words["attention"] == "csp" else 0.0
        return peaked(words, best[words["attention"]]) + spread

    found = audit(tmp_path, WrittenRuns(score), axes=("params", "time"))
    assert "(numbers at equal parameters)" in found["sentence"]
    assert "identity (+20.00 ± 0.00 over seeds at equal time, 6 seeds; better only at equal time" in found["sentence"]


def test_the_order_before_and_after_tuning_is_that_of_rows_with_a_trial_that_finished(tmp_path: Path) -> None:
    def diverging(name: str) -> WrittenRuns:
        return WrittenRuns(lambda words: None if words["attention"] == name else peaked(words))

    audit(tmp_path / "two", diverging("mha"), against=("identity", "mha"))
    assert "On validation tuning does not change the order: csp = identity." in page_of(tmp_path / "two")
    with pytest.raises(NoVerdictError):
        audit(tmp_path / "one", diverging("identity"))
    assert "On validation tuning" not in page_of(tmp_path / "one")


def test_the_order_after_tuning_is_that_on_the_seeds_that_all_rows_have(tmp_path: Path) -> None:
    disputed = {("0.003", "0"): 0.9, ("0.003", "1"): 0.8, ("0.001", "0"): 0.8, ("0.001", "1"): 0.85}

    def accuracy(words: Words) -> float:
        rate, seed = words["optim.lr"], words["seed"]
        if words["attention"] == "identity":
            return peaked(words, 0.7)
        return 0.3 if seed == "2" else disputed.get((rate, seed), peaked(words, 0.8))

    audit(tmp_path, WrittenRuns(accuracy))
    assert "On validation tuning does not change the order: csp > identity." in page_of(tmp_path)


@pytest.mark.parametrize(
    ("p", "text"),
    [
        (None, "–"),
        (0.0004, "< .001"),
        (0.012, "0.012"),
        (0.0496, "0.0496"),
        (0.04996, "0.04996"),
        (0.05, "0.050"),
        (0.0504, "0.050"),
    ],
)
def test_a_p_value_below_five_percent_looks_below_it(p: float | None, text: str) -> None:
    assert format_p(p) == text


def test_a_page_without_a_test_score_counts_no_evaluations(tmp_path: Path) -> None:
    with pytest.raises(NoVerdictError):
        audit(tmp_path, WrittenRuns(lambda words: None if words["attention"] == "csp" else peaked(words)))
    page = page_of(tmp_path)
    assert "No run of this page has scored the test set." in page and "The ledger counts" not in page


def test_tasks_with_one_public_test_set_are_said_to_reuse_it() -> None:
    public = ("imdb", "cifar10", "cifar100", "mnist", "modelnet40", "zinc", "lra_text", "peptides_func")
    assert all(map(is_public, public))
    assert not any(map(is_public, ("digits", "text_csv", "image_folder", "probe_recall", "qm9_gap")))


@pytest.mark.parametrize(("count", "is_larger"), [(3, True), (4, True), (5, False)])
def test_the_page_says_of_which_test_its_p_is(count: int, is_larger: bool) -> None:
    scores = np.random.default_rng(0).normal(0.1, 0.05, (count, 20))
    differences = dict(enumerate(scores.mean(axis=1).tolist()))
    found = judge_rows({"identity": {"own": Pairs(differences, estimate_crossed(scores))}})
    assert ("*p* is the larger one" in which_p(found)) == is_larger
    assert ("*p* is of the same Student's test." in which_p(found)) != is_larger


def set_commit(run: Path, commit: str) -> None:
    """Makes a run one of this commit."""
    file = run / "summary.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"git_commit": commit}))


def test_trials_of_another_commit_than_the_reporting_runs_are_named(tmp_path: Path) -> None:
    found = audit(tmp_path, WrittenRuns(peaked))
    assert len(found["commits"]) == 1 and "different versions of the code" not in page_of(tmp_path)
    runs = tmp_path / "audit" / "runs"
    set_commit(min(runs.glob("trial-csp-*")), f"{found['commits'][0]}+0wn")  # of an own operator
    audit(tmp_path, WrittenRuns(peaked))
    assert "different versions of the code" not in page_of(tmp_path)
    set_commit(min(runs.glob("trial-csp-*")), "0ther")
    assert set(audit(tmp_path, WrittenRuns(peaked))["commits"]) == {*found["commits"], "0ther"}
    assert "- Runs of different versions of the code: " in page_of(tmp_path)


def test_a_map_names_the_commits_of_its_runs_if_they_are_several(tmp_path: Path) -> None:
    options = MapOptions(folder=str(tmp_path), attentions=("csp",), probes=("count",), seeds=2)
    pages = []
    for _ in range(2):
        map_runs.run_map(options, WrittenRuns(lambda _: 0.995))
        pages.append((tmp_path / "report" / "map.md").read_text())
        set_commit(tmp_path / "runs" / "count-csp-lr0.003-trial0", "first")
        set_commit(tmp_path / "runs" / "count-csp-lr0.003-seed100", "second")
    assert "different versions" not in pages[0] and "first, second." in pages[1]
