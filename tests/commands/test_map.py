"""A map chooses learning rates and reports with different seeds, can be stopped anywhere, and grows."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure
from support import written_runs
from support.run_folders import read_summary
from support.written_runs import SECONDS, Words, WrittenRuns

from sliceformer_lab.__main__ import main
from sliceformer_lab.commands.compare.search import Point, Trial
from sliceformer_lab.commands.map import map_runs
from sliceformer_lab.commands.map.cells import Cell
from sliceformer_lab.commands.map.command import COMMAND
from sliceformer_lab.commands.map.draw_map import steps_shown
from sliceformer_lab.commands.map.map_options import MapOptions
from sliceformer_lab.commands.map.map_results import ProbeRun, Result
from sliceformer_lab.commands.map.rate_search import next_trials
from sliceformer_lab.config.compose import compose_root
from sliceformer_lab.config.schema import ConfigError
from sliceformer_lab.errors import DataError, Interrupted, LabError
from sliceformer_lab.runs.names import register_resolvers

pytestmark = pytest.mark.usefixtures("unwritten_pictures")

RATES = (3e-3, 1e-2, 1e-3, 3e-2)


def draw(folder: Path, launcher: WrittenRuns, **options: Any) -> list[dict[str, Any]]:
    """Runs a map and returns the lines of its map.jsonl."""
    chosen: dict[str, Any] = {"attentions": ("csp", "identity"), "probes": ("recall",), "seeds": 2} | options
    map_runs.run_map(MapOptions(folder=str(folder), **chosen), launcher)
    return read_map(folder)


def read_map(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "report" / "map.jsonl").read_text().splitlines()]


def by_rate(**scores: float | None) -> Callable[[Words], float | None]:
    """A validation accuracy that depends on the learning rate only: r0_003=0.5."""
    return lambda words: scores["r" + words["optim.lr"].replace(".", "_")]


def rising(words: Words) -> float:
    """Higher for larger learning rates; identity stays at the chance of recall."""
    return 0.04 if words["attention"] == "identity" else 0.2 + 10 * float(words["optim.lr"])


@pytest.mark.parametrize(
    ("tried", "expected"),
    [
        ({}, [(3e-3, 0)]),
        ({3e-3: (0.5,)}, [(1e-2, 0)]),
        ({3e-3: (0.99,)}, [(3e-3, 1)]),
        ({3e-3: (0.99, 0.99)}, []),
        ({3e-3: (0.99, 0.5)}, [(1e-2, 0)]),
        ({3e-3: (None,), 1e-2: (0.995, 1.0)}, []),
        ({3e-3: (0.5,), 1e-2: (0.4,)}, [(1e-3, 0)]),
        ({3e-3: (0.5,), 1e-2: (0.6,)}, [(3e-2, 0)]),  # .001 lies beyond a worse one
        ({3e-3: (0.5,), 1e-2: (0.4,), 1e-3: (0.3,)}, []),  # the others are too far from the best
        ({3e-3: (0.5,), 1e-2: (0.4,), 1e-3: (0.46,)}, [(3e-3, 1), (1e-3, 1)]),
        ({3e-3: (0.5, 0.1), 1e-2: (0.4,), 1e-3: (0.46,)}, [(1e-3, 1)]),
        ({3e-3: (0.5, 0.1), 1e-2: (0.47,), 1e-3: (0.3,)}, [(1e-2, 1)]),  # stopped before the other second seed
        ({3e-3: (0.5, 0.4), 1e-2: (0.4,), 1e-3: (0.46, 0.9)}, [(1e-3, 2), (3e-3, 2)]),
        ({3e-3: (0.5, 0.4), 1e-2: (0.4,), 1e-3: (0.46, 0.9, 0.3)}, [(3e-3, 2)]),
        ({3e-3: (0.99, 0.5), 1e-2: (0.9,), 3e-2: (0.3,)}, [(1e-2, 1)]),  # the best has a second seed if another has
        ({3e-3: (0.04,), 1e-2: (0.05,)}, []),  # both are at chance
        ({3e-3: (0.04,), 1e-2: (None,)}, [(1e-3, 0)]),  # one that diverged is no evidence of chance
        ({3e-3: (None,), 1e-2: (None,), 1e-3: (None,)}, []),
    ],
)
def test_rates_climb_to_the_best_until_one_solves_and_only_close_ones_get_further_seeds(
    tried: dict[float, tuple[float | None, ...]], expected: list[tuple[float, int]]
) -> None:
    trials = [
        Trial(Point(rate), tuple(value or 0.03 for value in values), lost=values.count(None))
        for rate, values in tried.items()
    ]
    assert next_trials(trials, RATES, chance=0.031) == expected


@pytest.mark.parametrize(
    ("fails", "rate", "steps", "tried"),
    [
        ((), 3e-3, 300, [(3e-3, 0)]),
        ((), 3e-3, 400, [(3e-3, 0), (3e-3, 1)]),
        (("0.003", "1"), 1e-2, 300, [(3e-3, 0), (3e-3, 1), (1e-2, 0)]),  # it wins over a rate with two seeds
    ],
)
def test_a_rate_that_solves_within_half_of_its_steps_needs_no_second_seed(
    fails: tuple[str, ...], rate: float, steps: int, tried: list[tuple[float, int]], tmp_path: Path
) -> None:
    def score(words: Words) -> float:
        return 0.5 if (words["optim.lr"], words["seed"]) == fails else 0.995

    with pytest.raises(Interrupted):
        draw(tmp_path, WrittenRuns(score, killed_at=3 if fails else 1), attentions=("csp",))
    summary = tmp_path / "runs" / f"recall-csp-lr{rate:g}-trial0" / "summary.json"
    reached = {"steps_to_stop_at": steps, "steps": {"planned": 600, "trained": steps}}
    summary.write_text(json.dumps(json.loads(summary.read_text()) | reached))
    (cell,) = draw(tmp_path, WrittenRuns(score), attentions=("csp",))
    assert [(run["rate"], run["seed"]) for run in cell["tuning"]] == tried and cell["rate"] == rate


def test_rates_are_chosen_without_the_test_set_and_reported_with_others(tmp_path: Path) -> None:
    csp, identity = draw(tmp_path, WrittenRuns(rising))
    tried = [(run["rate"], run["seed"]) for run in csp["tuning"]]
    assert tried == [(3e-3, 0), (1e-2, 0), (3e-2, 0)] and csp["rate"] == 3e-2
    assert [(run["rate"], run["seed"]) for run in identity["tuning"]] == [(3e-3, 0), (1e-2, 0)]
    assert identity["rate"] == 3e-3  # at chance with both rates, so there is nothing to choose
    for cell in (csp, identity):
        assert [(run["seed"], run["rate"]) for run in cell["reporting"]] == [(100, cell["rate"]), (101, cell["rate"])]
    assert csp["score"] == pytest.approx(0.49)  # the test score that WrittenRuns gives: validation less .01
    runs = tmp_path / "runs"
    trial, reporting = (read_summary(runs / f"recall-csp-lr0.03-{end}")["metrics"] for end in ("trial0", "seed100"))
    assert not any(name.startswith("test/") for name in trial)
    assert any(name.startswith("test/") for name in reporting)


def test_a_stopped_map_shows_what_it_has_and_goes_on_without_repeating_a_run(tmp_path: Path) -> None:
    early = WrittenRuns(rising, killed_at=2)
    with pytest.raises(Interrupted):
        draw(tmp_path / "early", early, attentions=("csp",))
    assert "| csp | validation .300 so far |" in (tmp_path / "early" / "report" / "map.md").read_text()
    first, second = WrittenRuns(rising, killed_at=4), WrittenRuns(rising)
    with pytest.raises(Interrupted):
        draw(tmp_path, first, attentions=("csp",))
    (cell,) = read_map(tmp_path)
    assert len(cell["tuning"]) == 3 and len(cell["reporting"]) == 1
    (cell,) = draw(tmp_path, second, attentions=("csp",))
    assert len(cell["reporting"]) == 2 and len(first.done) == 4 and second.done == ["recall-csp-lr0.03-seed101"]


def test_a_map_does_not_go_on_with_other_examples_of_a_probe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draw(tmp_path, WrittenRuns(rising), attentions=("csp",))
    monkeypatch.setattr(written_runs, "DIGESTS", {"test": "2c3d"})  # as if the generator had changed
    draw(tmp_path, WrittenRuns(rising), attentions=("csp",), probes=("recall", "back"))
    page = (tmp_path / "report" / "map.md").read_text()
    with pytest.raises(DataError, match=r"recall-csp-lr0.003-trial0 and recall-csp-lr0.03-seed102 .*the test data"):
        draw(tmp_path, WrittenRuns(rising), attentions=("csp",), seeds=3)
    assert (tmp_path / "report" / "map.md").read_text() == page


def test_each_round_of_a_map_says_how_many_runs_and_how_long_all_rounds_may_take(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    launcher = WrittenRuns(rising)
    draw(tmp_path, launcher)
    rounds = re.findall(r"map, round \d: (\d+) runs?; (.*) left with it", caplog.text)
    assert [(int(runs), rest) for runs, rest in rounds] == [
        (2, "6 to 20 runs"),  # nothing is known of their time
        (2, f"6 to 18 runs, about {6 * SECONDS} s to {18 * SECONDS} s,"),
        (3, f"5 to 10 runs, about {5 * SECONDS} s to {10 * SECONDS} s,"),  # identity reports
        (2, f"2 runs, about {2 * SECONDS} s,"),
    ]
    assert sum(int(runs) for runs, _ in rounds) == len(launcher.done)


def test_a_map_grows_by_probes_attentions_and_seeds(tmp_path: Path) -> None:
    draw(tmp_path, WrittenRuns(rising), attentions=("csp",), seeds=1)
    launcher = WrittenRuns(rising)
    draw(tmp_path, launcher, attentions=("mean", "csp"), seeds=2)
    assert [name for name in launcher.done if "csp" in name] == ["recall-csp-lr0.03-seed101"]
    with pytest.raises(ConfigError, match="differs in rates; choose another folder="):
        draw(tmp_path, launcher, rates=(1e-3,))


def test_a_failed_run_of_a_map_is_no_score_and_waits_for_retry(tmp_path: Path) -> None:
    for name, value, retry in (("optim.lr", "0.01", False), ("optim.lr", "0.01", False), ("seed", "101", True)):
        launcher = WrittenRuns(lambda words, n=name, v=value: -1 if words[n] == v else rising(words))
        with pytest.raises(LabError, match=r"1 of \d runs of this map failed"):
            draw(tmp_path, launcher, attentions=("csp",), retry=retry)
        assert read_map(tmp_path)[0]["rate"] == (3e-2 if retry else None)
    (cell,) = draw(tmp_path, WrittenRuns(rising), attentions=("csp",), retry=True)
    assert [(run["rate"], run["status"]) for run in cell["tuning"]] == [(3e-3, "ok"), (1e-2, "ok"), (3e-2, "ok")]
    assert [(run["seed"], run["status"]) for run in cell["reporting"]] == [(100, "ok"), (101, "ok")]


def test_a_run_that_diverges_counts_as_chance_and_its_probe_as_not_solved(
    tmp_path: Path, unwritten_pictures: list[Figure]
) -> None:
    def score(words: Words) -> float | None:
        return None if words["seed"] in ("100", "102") or words["optim.lr"] == "0.003" else 0.995

    (cell,) = draw(tmp_path, WrittenRuns(score), attentions=("csp",), seeds=3)
    first = cell["tuning"][0]
    assert (first["rate"], first["status"], cell["rate"]) == (3e-3, "diverged", 1e-2)
    chance = 1 / 32
    assert cell["score"] == pytest.approx((2 * chance + 0.985) / 3) and cell["steps"] is None
    text = (tmp_path / "report" / "map.md").read_text()
    assert "- csp solves in part recall (.349; 2 of 3 runs diverged and count as chance)." in text
    assert "| csp | .349 [.031, .985] (2 diverged) |" in text
    assert "lr 0.003, seed 0: diverged, the training loss became nan" in text
    assert ".349†" in {one.get_text() for one in unwritten_pictures[-1].axes[0].texts}


def test_a_probe_is_solved_in_the_median_of_its_steps_and_only_if_every_seed_solves_it() -> None:
    runs = [ProbeRun(3e-3, seed, "ok", 0.985, steps) for seed, steps in ((100, 200), (101, 300), (102, None))]
    cell = Cell("csp", "recall", MapOptions(folder=""))
    solved, in_part = (Result(cell, reporting=tuple(part)) for part in (runs[:2], runs))
    assert (solved.steps, steps_shown(solved)) == (250, "250")
    assert (in_part.steps, steps_shown(in_part)) == (None, "2 of 3")


def test_an_attention_whose_every_rate_diverges_is_not_said_to_be_unable_to_run(tmp_path: Path) -> None:
    draw(tmp_path, WrittenRuns(lambda words: None), attentions=("csp",))
    text = (tmp_path / "report" / "map.md").read_text()
    assert "- csp diverges at every learning rate on recall." in text and "| csp | diverged |" in text
    assert "cannot run" not in text and "- `csp` on recall: every run diverged" in text


def test_a_run_that_is_stopped_twice_ends_as_stopped_and_the_same_command_goes_on(tmp_path: Path) -> None:
    launcher = WrittenRuns(lambda words: -2 if words["attention"] == "csp" else 0.03)
    with pytest.raises(LabError, match=r"1 of 2 jobs in .* were stopped or not run.*\(interrupted\); the same command"):
        draw(tmp_path, launcher)
    assert launcher.done.count("recall-csp-lr0.003-trial0") == 2
    csp, _ = draw(tmp_path, WrittenRuns(rising))
    assert csp["score"] is not None


def test_a_cell_whose_configuration_cannot_run_is_empty_and_the_others_are_filled(tmp_path: Path) -> None:
    csp, identity = draw(tmp_path, WrittenRuns(rising), words=("attention.group_size=4",))
    assert csp["reason"] is None and csp["score"] is not None
    assert identity["reason"].startswith("attention.group_size: there is no such key") and not identity["tuning"]
    assert "| identity | cannot run |" in (tmp_path / "report" / "map.md").read_text()
    with pytest.raises(LabError, match=r"no cell of this map can be filled, the first because of: attention\.group"):
        draw(tmp_path / "none", WrittenRuns(rising), attentions=("identity",), words=("attention.group_size=4",))


def test_steps_shorter_than_the_warm_up_are_refused_before_any_job_starts(tmp_path: Path) -> None:
    launcher = WrittenRuns(rising)
    with pytest.raises(LabError, match=r"the first because of: optim\.warmup_steps=\d+ takes all of optim\.steps"):
        draw(tmp_path, launcher, words=("optim.steps=30",))
    assert not launcher.done


def test_the_report_says_what_is_at_chance_at_the_bag_level_and_above(tmp_path: Path) -> None:
    scores = {"identity": 0.05, "csp": 0.2, "mha": 0.6}
    draw(tmp_path, WrittenRuns(lambda words: scores[words["attention"]]), attentions=("mha", "csp", "identity"))
    text = (tmp_path / "report" / "map.md").read_text()
    assert "- mha solves in part recall (.590)." in text
    assert "- csp is not above the bag level on recall (.190; bag level .208)." in text
    assert "- identity is at chance on recall (.040)." in text
    assert "| chance | .031 |" in text and "| bag level | .208 |" in text
    rows = [line.split(" | ")[0] for line in text.splitlines() if line.startswith("| ") and "---" not in line]
    assert rows[:6] == ["| ", "| mha", "| csp", "| identity", "| bag level", "| chance"]


def test_a_map_of_a_few_batches_is_called_no_result(tmp_path: Path) -> None:
    draw(tmp_path, WrittenRuns(rising), words=("debug=fast",))
    assert "\n- The runs are a trial of a few batches, no result.\n" in (tmp_path / "report" / "map.md").read_text()


def test_the_report_marks_rates_at_the_edge_of_those_tried(tmp_path: Path) -> None:
    draw(tmp_path, WrittenRuns(rising), attentions=("csp", "identity"))
    rows = [line.split(" | ") for line in (tmp_path / "report" / "map.md").read_text().splitlines()]
    chosen = {row[1]: row[4] for row in rows if row[0] == "| recall"}
    assert chosen == {"csp": "0.03, at the edge", "identity": "0.003"}
    solved = draw(tmp_path / "solved", WrittenRuns(by_rate(r0_003=0.5, r0_01=0.995)), attentions=("csp",))
    assert solved[0]["rate"] == 1e-2
    assert "at the edge" not in (tmp_path / "solved" / "report" / "map.md").read_text()


@pytest.mark.slow
def test_a_map_of_easy_probes_tells_softmax_from_no_mixing(tmp_path: Path) -> None:
    words = ["data.level=easy", "data.num_test=256", "optim.steps=150", f"folder={tmp_path}", "launcher.threads=1"]
    options = ["attention=mha,identity", "probe=back,recall", "rates=[3e-3]", "seeds=1"]
    assert main(["map", *options, *words]) == 0
    cells = {(cell["attention"], cell["probe"]): cell for cell in read_map(tmp_path)}
    for probe in ("back", "recall"):
        assert cells["mha", probe]["score"] > 0.98 and cells["mha", probe]["steps"] <= 150
        assert cells["identity", probe]["score"] < 0.12 and cells["identity", probe]["steps"] is None
    text = (tmp_path / "report" / "map.md").read_text()
    assert "mha solves back (" in text
    sizes = {name: cells[name, "back"]["reporting"][0]["parameters"] for name in ("mha", "identity")}
    assert sizes["mha"] > sizes["identity"] > 0 and f"| back | mha | {sizes['mha']:,} |" in text


def test_attentions_and_probes_are_the_rows_and_columns_and_other_words_are_of_the_runs() -> None:
    register_resolvers()
    composed = compose_root(COMMAND.own_words(["attention=mha,csp", "probe=back", "encoder.dim=32"]), "map")
    assert (composed["attentions"], composed["probes"]) == (["mha", "csp"], ["back"])
    assert composed["words"] == ["encoder.dim=32"]
    own = MapOptions(folder="", words=("attention.sample_size=16",))
    assert Cell("samsa", "back", own).words[-1] == "attention.sample_size=16", "the last word wins"
