"""studies/speed.md shows the goals of a CPU and of a GPU, and the results of a benchmark once they are kept."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import goals_page
import pytest
import speed_goals
from speed_goals import Goal, goals_for, verdicts
from support.benchmark_rows import made_row

from sliceformer_lab.commands.benchmark.benchmark_options import BenchmarkOptions
from sliceformer_lab.commands.benchmark.comparisons import comparisons
from sliceformer_lab.commands.benchmark.contest import run_contest
from sliceformer_lab.commands.benchmark.rows import SpeedRow


def written(folder: Path, rows: list[SpeedRow], accelerator: str = "H200") -> Path:
    """The folder of a benchmark on a GPU."""
    facts = {"processor": "Xeon", "accelerator": accelerator, "versions": {"torch": "2.14"}, "git_commit": "abc"}
    content = {
        "options": {"suite": "layers", "device": "cuda", "rounds": 7},
        "machine": facts | {"load_before": 0.5},
        "rows": [asdict(row) for row in rows],
    }
    folder.mkdir(exist_ok=True)
    (folder / "results.json").write_text(json.dumps(content))
    return folder


def measured(name: str, seconds: float, **facts: Any) -> SpeedRow:
    """A row of a layer at N=64, measured in two rounds."""
    times = {"seconds": seconds, "rounds": [seconds, seconds]}
    return made_row(name, **{"engine": "plain", "saved_bytes_per_element": 4.0, **times, **facts})


@pytest.fixture
def goals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Goal]:
    """Two goals of a GPU; nothing is kept yet."""
    chosen = [Goal("GPU", "layer", 64, name, "training", "mha", 0.5, None) for name in ("csp", "sliceformer")]
    monkeypatch.setattr(speed_goals, "CUDA_GOALS", tuple(chosen))
    monkeypatch.setattr(goals_page, "RESULTS", tmp_path / "kept")
    (tmp_path / "kept").mkdir()
    return chosen


SOFTMAX = measured("mha (fused)", 1.0, engine="sdpa", softmax_kernel="flash")


def test_goals_that_became_slower_are_named_beyond_the_tolerance(goals: list[Goal], tmp_path: Path) -> None:
    def keep(csp: float, sliceformer: float, accelerator: str = "H200") -> list[str]:
        rows = [
            measured("csp (triton)", csp, engine="custom"),
            measured("sliceformer (triton)", sliceformer, engine="custom"),
        ]
        return goals_page.keep([written(tmp_path / "a", [SOFTMAX, *rows], accelerator)])

    assert keep(0.1, 2.0) == []
    assert keep(0.109, 2.3) == [f"slower: {goals[1]}, kernel: 2.3 instead of 2"]
    assert keep(0.109, 9.0, "B200") == ["not compared with the results kept before, which are of H200"]


def test_a_goal_without_a_measurement_is_named(
    goals: list[Goal], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    longer = Goal("GPU", "layer", 1024, "csp", "training", "mha", 0.5, None)
    monkeypatch.setattr(speed_goals, "CUDA_GOALS", (goals[0], longer))
    rows = [SOFTMAX, measured("csp (triton)", 0.1, engine="custom")]
    assert goals_page.keep([written(tmp_path / "a", rows)]) == [f"not measured: {longer}"]
    assert goals_page.section("cuda").endswith(f"| {longer} | 0.5 | – |")
    others = [replace(row, tokens=1024) for row in rows]
    with pytest.raises(SystemExit, match=r"no measurement of layer csp, N=64, .* that were measured before"):
        goals_page.keep([written(tmp_path / "b", others)])


def test_goal_is_met_or_missed_by_how_much() -> None:
    goal = Goal("A", "layer", 64, "csp", "training", "mha", 0.5, 0.6)
    rows = [
        measured("mha (fused)", 1.0, engine="sdpa"),
        measured("csp (plain)", 0.75),
        measured("csp (cpu)", 0.4, engine="custom"),
    ]
    kernel, plain = verdicts([goal], rows)
    assert (kernel.column, kernel.met, kernel.off_by) == ("kernel", True, pytest.approx(-0.2))
    assert (plain.column, plain.met, plain.off_by) == ("plain", False, pytest.approx(0.25))
    without_kernel = verdicts([goal], rows[:2])[0]
    assert (without_kernel.met, without_kernel.measured, without_kernel.note) == (False, None, "no kernel row")
    assert verdicts([replace(goal, tokens=128)], rows) == []
    saved = replace(goal, against=None, kernel=4.0, plain=3.0)
    assert [verdict.met for verdict in verdicts([saved], rows)] == [True, False]
    lost = verdicts([goal], [made_row("mha (fused)", status="oom"), *rows[1:]])[0]
    assert (lost.met, lost.measured, lost.note) == (False, None, "mha was not measured")


@pytest.mark.slow
@pytest.mark.parametrize("tokens", [64, 1024])
def test_operators_are_measured_and_judged_with_all_rows_that_the_goals_of_a_gpu_compare(tokens: int) -> None:
    on_gpu = BenchmarkOptions(
        suite="operators", device="cuda", dtype="bfloat16", sizes=(tokens,), batch=1, rounds=2, warmup=1
    )
    here = replace(on_gpu, device="cpu")
    operators = [comparison for comparison in comparisons(on_gpu) if comparison.workload.kind == "operator"]
    rows = [row for comparison in operators for row in run_contest(comparison, here)]
    assert {(row.status, row.dtype) for row in rows} == {("ok", "bfloat16")}
    for row in rows:
        if row.method == "shift_sort":  # in place of the kernel, which needs a GPU
            row.engine = "custom"
    goals = [goal for goal in goals_for("cuda") if (goal.kind, goal.tokens) == ("operator", tokens)]
    found = verdicts(goals, rows)
    assert len(found) == len(goals) > 4
    assert all(verdict.measured > 0 for verdict in found)
