"""The tables of the probes are those of the committed cells."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import probe_maps
import pytest


def cell(attention: str, probe: str, values: list[float | None], steps: float | None = None) -> dict[str, Any]:
    """A line of map.jsonl."""
    runs = [{"seed": 100 + i, "value": value} for i, value in enumerate(values)]
    facts = {"reason": None, "steps": steps, "chance": 0.031, "bag_level": 0.208}
    return {"attention": attention, "probe": probe, "reporting": runs, **facts}


def test_page_is_current() -> None:
    assert probe_maps.PAGE.read_text(encoding="utf-8") == probe_maps.page(), "`make docs` writes it anew"


def test_every_row_of_the_tables_was_run() -> None:
    found = {(cell["row"], cell["probe"]) for cell in probe_maps.read()}
    assert {(row, probe) for row in probe_maps.MAIN_ROWS for probe in probe_maps.PROBES} - found == probe_maps.TOO_SLOW
    assert {(row, probe) for row in probe_maps.SORT_ROWS for probe in probe_maps.SORT_PROBES} <= found


def test_maps_are_added_by_label_and_the_same_cells_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe_maps, "FILE", tmp_path / "cells.jsonl")
    maps = {
        None: [cell("csp", "recall", [0.5])],
        "csp, group_size=4": [cell("csp", "recall", [0.2, 0.1, 0.3]), cell("csp", "rank", [0.998, 1.0], 300)],
    }
    for label in (None, "csp, group_size=4", None):
        (tmp_path / "report").mkdir(exist_ok=True)
        (tmp_path / "report" / "map.jsonl").write_text("\n".join(map(json.dumps, maps[label])), encoding="utf-8")
        probe_maps.collect(tmp_path, label)
    rows = {"csp": "pairs", "csp, group_size=4": "windows of 4", "mha": ""}
    assert probe_maps.table(rows, ["recall", "rank"]).splitlines()[2:] == [
        "| `csp`: pairs | .500 | – |",
        "| `csp, group_size=4`: windows of 4 | .200 [.100, .300] | .999 [.998, 1.00] (300 steps) |",
        "| bag level | .208 | .208 |",
        "| chance | .031 | .031 |",
    ]
