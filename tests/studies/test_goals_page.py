"""docs/speed.md shows the goals of a CPU and of a GPU, and the results of a benchmark once they are kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import goals_page
import pytest

from sliceformer_lab.commands.benchmark.goals import CUDA_GOALS

MET, MISSED, FAILED = (str(goal) for goal in CUDA_GOALS[:3])


def test_page_is_current() -> None:
    assert goals_page.PAGE.read_text(encoding="utf-8") == goals_page.page(), "`make docs` writes it anew"


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The results of a benchmark on a GPU, as `benchmark` writes them; nothing is kept yet."""
    monkeypatch.setattr(goals_page, "RESULTS", tmp_path / "kept")
    (tmp_path / "kept").mkdir()
    row = dict.fromkeys([*goals_page.KEPT, "rounds"]) | {"softmax_kernel": "flash", "rounds": [1.0, 2.0]}
    facts = {"processor": "Xeon", "accelerator": "H200", "versions": {"torch": "2.14"}, "git_commit": "abc"}
    verdicts: list[tuple[str, float | None, bool, str]] = [
        (MET, 0.1234, True, ""),
        (MISSED, 2.0, False, ""),
        (FAILED, None, False, "no kernel row"),
    ]
    return {
        "options": {"suite": "goals", "device": "cuda", "rounds": 7},
        "machine": facts | {"load_before": 0.5},
        "rows": [row],
        "goals": [
            {"goal": goal, "column": "kernel", "measured": measured, "met": met, "note": note}
            for goal, measured, met, note in verdicts
        ],
        "matches": [],
    }


def keep(results: dict[str, Any], folder: Path) -> list[str]:
    (folder / "results.json").write_text(json.dumps(results))
    return goals_page.keep(folder)


def test_kept_results_stand_beside_their_limits(results: dict[str, Any], tmp_path: Path) -> None:
    assert keep(results, tmp_path) == []
    text, table = goals_page.section("cuda").split("\n\n")
    assert text.startswith("Measured on H200, torch 2.14, commit abc, load 0.5 before the start, medians of\n7 rounds;")
    assert text.endswith("softmax attention: flash. **1 of 3 goals are met.**")
    cells = [line.strip("| ").split(" | ") for line in table.splitlines()[2:]]
    assert [row[0] for row in cells] == [str(goal) for goal in CUDA_GOALS]
    assert [row[2] for row in cells[:4]] == ["0.123", "2 **missed**", "no kernel row", "–"]
    kept = goals_page.read("cuda")
    assert kept is not None and "rounds" not in kept["rows"][0]


def test_goals_that_became_slower_are_named_beyond_the_tolerance(results: dict[str, Any], tmp_path: Path) -> None:
    keep(results, tmp_path)
    results["goals"][0]["measured"], results["goals"][1]["measured"] = 0.1234 * 1.09, 2.3
    assert keep(results, tmp_path) == [f"slower: {MISSED}, kernel: 2.3 instead of 2"]
    results["machine"]["accelerator"] = "B200"
    assert keep(results, tmp_path) == ["not compared with the results kept before, which are of H200"]


def test_results_of_another_suite_are_refused(results: dict[str, Any], tmp_path: Path) -> None:
    results["options"]["suite"] = "layers"
    with pytest.raises(SystemExit, match="holds no results of benchmark suite=goals"):
        keep(results, tmp_path)
