"""The tables on the reach of shifts are those of the committed runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import reach_page
from support.run_folders import write_run


def test_page_is_current() -> None:
    assert reach_page.PAGE.read_text(encoding="utf-8") == reach_page.page(), "`make docs` writes it anew"


def test_a_cell_has_every_seed_in_order_and_says_how_many_were_solved() -> None:
    row = {"task": "probe_back", "tokens": 256, "attention": "mha", "shift": None, "group_size": None}
    runs = [
        {**row, "seed": 1, "test/accuracy": 0.991, "steps_to_stop_at": 400},
        {**row, "seed": 0, "test/accuracy": 0.5, "steps_to_stop_at": None},
        {**row, "seed": 2, "test/accuracy": 1.0, "steps_to_stop_at": 300},
    ]
    line = reach_page.back_table(runs).splitlines()[-1]
    assert line == "| `mha` | – | 0.500, 0.991, 1.000 (2 of 3: 300 to 400) | – | – |"


def test_collect_replaces_the_same_run_and_leaves_out_what_did_not_finish(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reach_page, "FILE", tmp_path / "reach.json")
    for name, accuracy, status in (("0-a", 0.5, "ok"), ("1-b", 0.7, "ok"), ("2-c", 0.9, "failed")):
        file = write_run(tmp_path / "sweep" / name, "csp", 0, accuracy) / "summary.json"
        summary = json.loads(file.read_text(encoding="utf-8")) | {"status": status}
        file.write_text(json.dumps(summary), encoding="utf-8")
    reach_page.collect([tmp_path / "sweep"])
    assert [run["test/accuracy"] for run in reach_page.read()] == [0.7]
