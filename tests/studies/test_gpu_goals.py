"""docs/speed.md shows the goals of a GPU, and the results of a benchmark on one once they are kept."""

from __future__ import annotations

import json
from pathlib import Path

import gpu_goals
import pytest
from marked_sections import section

from sliceformer_lab.commands.benchmark.goals import CUDA_GOALS


def test_page_is_current() -> None:
    text = gpu_goals.PAGE.read_text(encoding="utf-8")
    assert section(text, "goals of a GPU") == gpu_goals.goals(), "`make docs` writes it anew"


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a benchmark on a GPU, as `benchmark` writes it."""
    monkeypatch.setattr(gpu_goals, "MEASURED", tmp_path / "kept.json")
    row = dict.fromkeys([*gpu_goals.KEPT, "rounds"]) | {"softmax_kernel": "flash", "rounds": [1.0, 2.0]}
    met, missed, failed = (str(goal) for goal in CUDA_GOALS[:3])
    content = {
        "options": {"suite": "goals", "device": "cuda", "rounds": 7},
        "machine": {"accelerator": "H200", "versions": {"torch": "2.14"}, "git_commit": "abc"},
        "rows": [row],
        "goals": [
            {"goal": met, "measured": 0.1234, "met": True, "note": ""},
            {"goal": missed, "measured": 2.0, "met": False, "note": ""},
            {"goal": failed, "measured": None, "met": False, "note": "no kernel row"},
        ],
        "matches": [],
    }
    (tmp_path / "results.json").write_text(json.dumps(content))
    return tmp_path


def test_kept_results_stand_beside_their_limits(results: Path) -> None:
    gpu_goals.keep(results)
    lines = gpu_goals.goals().splitlines()
    assert lines[0].startswith("Measured on H200, torch 2.14, commit abc, median of 7 rounds; softmax attention: flash")
    cells = [line.strip("| ").split(" | ") for line in lines[4:]]
    assert [row[0] for row in cells] == [str(goal) for goal in CUDA_GOALS]
    assert [row[2] for row in cells[:4]] == ["0.123", "2 **missed**", "no kernel row", "–"]
    assert "rounds" not in json.loads(gpu_goals.MEASURED.read_text())["rows"][0]


def test_results_of_another_suite_are_refused(results: Path) -> None:
    content = json.loads((results / "results.json").read_text())
    content["options"]["device"] = "cpu"
    (results / "results.json").write_text(json.dumps(content))
    with pytest.raises(SystemExit, match="holds no results of benchmark suite=goals device=cuda"):
        gpu_goals.keep(results)
