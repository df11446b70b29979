"""The tables of the probes are those of the committed cells."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import probe_maps
import pytest


def run(rate: float, seed: int, value: float | None, parameters: int = 51_000) -> dict[str, Any]:
    facts = {"status": "ok", "steps": None, "seconds": 1.0, "commit": None, "error": None}
    return {"rate": rate, "seed": seed, "value": value, "parameters": parameters, **facts}


def cell(attention: str, probe: str, values: list[float | None], steps: float | None = None) -> dict[str, Any]:
    """A line of map.jsonl, whose best learning rate is between the others."""
    runs = [run(3e-3, 100 + i, value) for i, value in enumerate(values)]
    tuning = [run(3e-3, 0, 0.5), run(1e-2, 0, 0.4), run(1e-3, 0, 0.4)]
    facts = {"reason": None, "rate": 3e-3, "steps": steps, "chance": 0.031, "bag_level": 0.208}
    return {"attention": attention, "probe": probe, "tuning": tuning, "reporting": runs, **facts}


def test_every_row_of_the_tables_was_run() -> None:
    found = {(cell["row"], cell["probe"]) for cell in probe_maps.read()}
    main, pairs = (dict.fromkeys(names) for names in (probe_maps.MAIN_ROWS, probe_maps.PAIR_ROWS))
    assert of_table(main, probe_maps.on(probe_maps.PROBES)) - found == probe_maps.TOO_SLOW
    assert of_table(probe_maps.SORT_ROWS, probe_maps.on(probe_maps.SORT_PROBES)) <= found
    assert of_table(probe_maps.HYBRID_ROWS, probe_maps.HYBRID_COLUMNS) <= found
    assert of_table(pairs, probe_maps.PAIR_COLUMNS) <= found
    assert {row for row, probe in found if probe in ("back_far", "words")} >= set(probe_maps.SIZE_ROWS)


def of_table(rows: Mapping[str, Any], columns: probe_maps.Columns) -> set[tuple[str, str]]:
    """Row and probe of each cell of a table."""
    return {(row + suffix, probe) for row in rows for probe, suffix in columns.values()}


def test_maps_are_added_by_label_and_the_same_cells_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe_maps, "FILE", tmp_path / "cells.jsonl")
    maps = {
        None: [cell("csp", "recall", [0.5])],
        "*, group_size=4": [cell("csp", "recall", [0.2, 0.1, 0.3]), cell("csp", "rank", [0.998, 1.0], 300)],
    }
    for label in (None, "*, group_size=4", None):
        (tmp_path / "report").mkdir(exist_ok=True)
        (tmp_path / "report" / "map.jsonl").write_text("\n".join(map(json.dumps, maps[label])), encoding="utf-8")
        probe_maps.collect(tmp_path, label)
    rows = {"csp": "pairs", "csp, group_size=4": "windows of 4", "mha": ""}
    assert probe_maps.table(rows, probe_maps.on(["recall", "rank"])).splitlines()[2:] == [
        "| `csp`: pairs | 51 | .500 | – |",
        "| `csp, group_size=4`: windows of 4 | 51 | .200 [.100, .300] | .999 [.998, 1.00] (300 steps) |",
        "| bag level |  | .208 | .208 |",
        "| chance |  | .031 | .031 |",
    ]


def test_a_table_shows_sizes_and_rates_at_the_edge(monkeypatch: pytest.MonkeyPatch) -> None:
    large, edge = cell("csp", "recall", [0.5]), cell("csp", "rank", [0.6])
    large["reporting"] = [run(3e-3, 100, 0.5, parameters=180_400)]
    edge["tuning"], edge["rate"] = [run(3e-3, 0, 0.5), run(1e-2, 0, 0.6), run(3e-2, 0, 0.7)], 3e-2
    monkeypatch.setattr(probe_maps, "read", lambda: [{"row": "csp", **large}, {"row": "csp", **edge}])
    table = probe_maps.table({"csp": ""}, probe_maps.on(["recall", "rank"]))
    assert table.splitlines()[2] == "| `csp` | 51 to 180 | .500 | .600* |"
