"""The table of all attentions, trained on two tasks, covers every attention and agrees with the committed runs."""

from __future__ import annotations

from pathlib import Path

import all_attentions
import attentions
import pytest
from support.run_folders import write_run

from sliceformer_lab.errors import DataError

UNFIT = {"csp_causal", "mega"}  # bidirectional tasks gain nothing from the first; the second needs a block of its own


def test_every_attention_has_a_row_and_three_seeds_on_both_tasks() -> None:
    rows = {*all_attentions.CONTROLS, *all_attentions.OTHERS}
    assert set(attentions.presets()) - UNFIT <= rows
    seeds = {(run["task"], run["attention"], run["seed"]) for run in all_attentions.read()["runs"]}
    assert seeds == {(task, row, seed) for task in all_attentions.WORDS for row in rows for seed in (0, 1, 2)}


def test_a_row_gives_the_mean_and_the_range_of_its_seeds() -> None:
    runs = [{"accuracy": value, "parameters": 12_345} for value in (0.9, 0.8, 0.85)]
    assert all_attentions._cells(runs, 1234.5) == ["85.0 (80.0 to 90.0)", "12 K", "1,234"]
    assert all_attentions._cells(runs[:2], 1.0)[0] == "85.0 (80.0 to 90.0, 2 seeds)"


def test_only_finished_runs_are_collected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(all_attentions, "FILE", tmp_path / "results.json")
    folder = tmp_path / "sweep" / "0-digits-mha"
    write_run(folder, "mha", 1, accuracy=None)
    with pytest.raises(DataError, match="has status failed"):
        all_attentions.collect([tmp_path / "sweep"])
    assert all_attentions.read() == {}
    write_run(folder, "mha", 1, accuracy=0.5, wall_seconds=3.2)
    all_attentions.collect([tmp_path / "sweep"])
    all_attentions.collect([tmp_path / "sweep"])  # replaces, adds nothing
    (run,) = all_attentions.read()["runs"]
    assert (run["accuracy"], run["num_test"], run["seconds"]) == (0.5, 299, 3)
