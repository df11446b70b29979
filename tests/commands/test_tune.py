"""A search gives every attention equal chances, can be stopped anywhere, and scores the test set at the end only."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.written_runs import Words, WrittenRuns

from sliceformer_lab.commands.compare import steps
from sliceformer_lab.commands.compare.compare_options import CompareOptions
from sliceformer_lab.errors import ConfigError, Interrupted, LabError
from sliceformer_lab.runs.tuned import with_tuned

pytestmark = pytest.mark.usefixtures("unwritten_pictures")

OWN = 2e-3  # the learning rate of conf/optim/digits.yaml


ROWS = ("mha", "csp", "identity")


def peak(at: float, height: float = 0.9) -> Callable[[Words], float]:
    """An accuracy that falls with the distance from a learning rate, given as a factor of the recipe's own."""

    def accuracy(words: Words) -> float:
        noise = 0.001 * (int(words["seed"]) * (3 if words["attention"] == "csp" else 5) % 7)
        return height + noise - 0.05 * abs(math.log10(float(words.get("optim.lr", OWN)) / (OWN * at)))

    return accuracy


def search(folder: Path, launcher: WrittenRuns, *attentions: str, **options: Any) -> dict[str, Any]:
    """Runs a search and returns its results.json."""
    subject, *others = attentions or ("mha", "csp")
    chosen: dict[str, Any] = {"trials": 6, "seeds": 3, "words": ("encoder=tiny",)} | options
    found = CompareOptions(subject=subject, against=tuple(others), folder=str(folder), **chosen)
    steps.run_comparison("tune", found, launcher)
    return json.loads((folder / "report" / "results.json").read_text(encoding="utf-8"))


def test_the_recipe_s_rate_is_tried_and_the_best_values_are_kept_for_other_runs(tmp_path: Path) -> None:
    launcher = WrittenRuns(peak(3))
    found = search(tmp_path, launcher, untuned=True)
    points = [[trial["point"] for trial in found["trials"][name]] for name in ("mha", "csp")]
    assert points[0] == points[1] and points[0][0]["rate"] == OWN
    best = found["chosen"]["csp"]["rate"]
    assert with_tuned([f"optim=tuned:{tmp_path}/csp"]) == [f"optim.lr={best}", "tuned_on=digits/65e5"]
    assert OWN < best < 9 * OWN
    assert sum("trial" in name for name in launcher.done) < len(launcher.done)
    page = (tmp_path / "report" / "tune.md").read_text()
    assert "recipe's own values" in page and "On validation tuning" in page
    assert "python -m sliceformer_lab tune attention=mha" in page


def test_a_rate_at_the_edge_brings_every_row_the_same_new_trials(tmp_path: Path) -> None:
    far = peak(40)
    found = search(tmp_path, WrittenRuns(lambda words: (far if words["attention"] == "csp" else peak(1))(words)))
    points = [[trial["point"]["rate"] for trial in found["trials"][name]] for name in ("mha", "csp")]
    assert points[0] == points[1] and 6 < len(points[0]) <= 12 and max(points[0]) > 10 * OWN


def test_a_trial_that_diverges_counts_as_chance_and_a_search_in_which_all_do_says_so(tmp_path: Path) -> None:
    def accuracy(words: Words) -> float | None:
        rate = float(words["optim.lr"])
        return None if rate > 3 * OWN else 0.02 if rate < OWN / 3 else peak(1)(words)

    found = search(tmp_path / "some", WrittenRuns(accuracy), trials=8)
    below = [trial for trial in found["trials"]["mha"] if trial["point"]["rate"] < OWN / 3]
    assert below and all((trial["scores"], trial["lost"]) == ([0.1, 0.1], 0) for trial in below)
    lost = [trial for trial in found["trials"]["mha"] if trial["lost"]]
    assert lost and all(trial["scores"] == [0.1, 0.1] for trial in lost)
    with pytest.raises(LabError, match=r"every trial in .* diverged"):
        search(tmp_path / "all", WrittenRuns(lambda _: None))


def test_a_killed_search_goes_on_without_losing_or_repeating_a_trial(tmp_path: Path) -> None:
    options = {"trials": 0, "search": "lr_wd"}
    whole = WrittenRuns(peak(2))
    expected = search(tmp_path / "whole", whole, **options)
    done: list[str] = []
    for killed_at in (1, 7, None):
        launcher = WrittenRuns(peak(2), killed_at)
        try:
            found = search(tmp_path / "killed", launcher, **options)
        except Interrupted:
            assert killed_at is not None
        done += launcher.done
    assert sorted(done) == sorted(whole.done) and len(set(done)) == len(done)
    assert found["trials"] == expected["trials"] and found["outcomes"] == expected["outcomes"]


def test_one_attention_can_be_tuned_alone(tmp_path: Path) -> None:
    found = search(tmp_path, WrittenRuns(peak(1)), "csp")
    sentence = "digits: the best values for csp are optim.lr="
    assert found["sentence"].startswith(sentence) and found["outcomes"] == []
    (page,) = tmp_path.glob("**/tune.md")
    assert sentence in page.read_text() and "Verdicts" not in page.read_text()
    assert not (page.parent / "differences.png").exists()
    assert set(json.loads((tmp_path / "best.json").read_text())["attention"]) == {"csp"}


def test_one_attention_that_never_learned_is_not_called_tuned(tmp_path: Path) -> None:
    lucky = WrittenRuns(lambda words: 0.109 + 0.002 * int(words["seed"]))  # above chance at 5 %, not at 5 % / 6 trials
    found = search(tmp_path, lucky, "csp")
    assert found["sentence"].startswith("digits: csp did not learn at any of ")


def test_a_row_that_never_learned_has_no_best_values_and_no_place_in_an_order(tmp_path: Path) -> None:
    accuracy = peak(1)
    search(tmp_path, WrittenRuns(lambda words: 0.1 if words["attention"] == "identity" else accuracy(words)), *ROWS)
    assert with_tuned([f"optim=tuned:{tmp_path}/csp"])[0].startswith("optim.lr=")
    with pytest.raises(ConfigError, match=r"identity did not learn at any rate in .*, so it has no best values"):
        with_tuned([f"optim=tuned:{tmp_path}/identity"])
    (order,) = re.findall("On validation tuning .*", (tmp_path / "report" / "tune.md").read_text())
    assert "mha" in order and "csp" in order and "identity" not in order


def test_a_search_does_not_go_on_with_another_recipe(tmp_path: Path) -> None:
    search(tmp_path, WrittenRuns(peak(1)), trials=2)
    plan = json.loads((tmp_path / "tune.json").read_text())
    assert plan["own_rates"]["csp"] == OWN and "commit" in plan
    (tmp_path / "tune.json").write_text(json.dumps(plan | {"own_rates": {"mha": OWN, "csp": 1e-3}}))
    with pytest.raises(ConfigError, match="that differs in own_rates"):
        search(tmp_path, WrittenRuns(peak(1)), trials=2)


def test_the_direction_follows_from_the_task_and_a_row_that_always_diverges_has_not_learned(tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    rows = [f"{'C' * (1 + number % 7)},{number % 2}.5" for number in range(80)]
    table.write_text("\n".join(["smiles,target", *rows]))
    words = ("task=molecule_csv", f"data.file={table}", "data.targets=[target]")

    def diverges(words: Words) -> bool:
        return words["attention"] == "csp" or (words["seed"] == "1" and float(words["optim.lr"]) > OWN)

    launcher = WrittenRuns(lambda words: None if diverges(words) else peak(1)(words))
    with pytest.raises(LabError, match="no verdict: csp: csp did not learn at any of 12 rates"):
        search(tmp_path / "tune", launcher, words=words, trials=6)
    found = json.loads((tmp_path / "tune" / "report" / "results.json").read_text(encoding="utf-8"))
    lost = [trial["scores"][1] for trial in found["trials"]["mha"] if trial["lost"]]
    known = {score for trial in found["trials"]["mha"] for score in trial["scores"]}
    assert {*lost} == {max(known)} != known, "no chance is known, so the worst run takes its place"
    scores = {trial["point"]["rate"]: trial["scores"] for trial in found["trials"]["mha"]}
    assert found["declaration"]["metric"] == "test/mae" and len(scores) >= 2
    assert found["chosen"]["mha"]["rate"] == min(scores, key=lambda rate: sum(scores[rate]))  # the smallest error

    def error(words: Words) -> float:
        return 1 - peak(1, 0.9 if words["attention"] == "csp" else 0.5)(words)

    chosen = {"words": words, "trials": 0, "rates": (OWN / 3, OWN, 3 * OWN)}
    found = search(tmp_path / "better", WrittenRuns(error, metric="mae"), "csp", "identity", **chosen)
    (one,) = found["outcomes"]
    assert one["verdict"] == "better" and one["findings"]["own"]["on_validation"]["low"] > 0
    assert one["findings"]["own"]["margin"] == pytest.approx(0.02 * 0.5, rel=0.1), "a share of the other row's error"


def test_a_row_has_learned_by_its_tuning_seeds_whatever_the_deciding_seed_adds(tmp_path: Path) -> None:
    def accuracy(words: Words) -> float | None:
        if words["seed"] == "2" or words["optim.lr"] not in ("0.002", "0.003"):
            return None
        return 0.9 if (words["seed"] == "0") == (words["optim.lr"] == "0.002") else 0.901

    found = search(tmp_path, WrittenRuns(accuracy), trials=0)
    assert any(len(trial["scores"]) == 3 for trial in found["trials"]["csp"])
    assert found["outcomes"][0]["reason"] is None


def test_a_diverged_run_on_a_probe_has_the_chance_of_the_probe(tmp_path: Path) -> None:
    launcher = WrittenRuns(lambda words: None if words["seed"] == "1" else 0.9)
    found = search(tmp_path, launcher, "csp", words=("task=probe_words",))
    assert found["trials"]["csp"][0]["scores"] == [0.9, pytest.approx((1 + 7 / 6) / 8)]  # one known answer of 8
