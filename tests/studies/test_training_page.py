"""docs/speed.md shows whole training steps as they were measured."""

from __future__ import annotations

import json
from pathlib import Path

import fused_softmax
import pytest
import training_page


def test_page_is_current() -> None:
    text = training_page.PAGE.read_text(encoding="utf-8")
    assert text == training_page.page() == fused_softmax.page(), "`make docs` writes it anew"


def test_shares_and_the_framework_add_up_to_a_step() -> None:
    """Lightning's step is data, model, optimiser and what the framework adds."""
    for line in training_page.table().splitlines()[2:]:
        if line.startswith("| "):
            cells = line.strip("| ").split(" | ")
            assert 90 < sum(map(float, cells[7:10])) < 110, line  # the rest is the framework


def test_results_are_kept_with_their_options_and_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = training_page.read()[0]
    options, machine = {**first["options"], "device": "cpu"}, {**first["machine"], "cores": 2}
    rows = [{**row, "published": None} for row in first["rows"]]
    (tmp_path / "results.json").write_text(json.dumps({"options": options, "machine": machine, "rows": rows}))
    monkeypatch.setattr(training_page, "FILE", tmp_path / "kept.json")
    training_page.keep([tmp_path])
    assert training_page.read() == [first]
