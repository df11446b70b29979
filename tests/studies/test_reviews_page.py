"""The tables of the reviewers' questions follow from the committed scores."""

from __future__ import annotations

from pathlib import Path

import pytest
import reviews_page
from support.run_folders import write_run


def test_every_table_is_of_a_preset() -> None:
    folder = Path(reviews_page.__file__).parent / "conf" / "study" / "csp_reviews"
    assert set(reviews_page.CONTRASTS) <= {file.stem for file in folder.glob("*.yaml")}


def run(folder: Path, group_size: int | None, seed: int, accuracy: float) -> None:
    facts = {"study": "csp_reviews/q15_windows", "options": {"attention.group_size": group_size}}
    write_run(folder / f"{group_size}-{seed}", "csp", seed, accuracy, **facts)


def test_differences_are_paired_by_seed_and_runs_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reviews_page, "FILE", tmp_path / "scores.json")
    for seed, without, pairs in ((0, 0.5, 0.6), (1, 0.7, 0.82), (2, 0.9, 0.99)):
        run(tmp_path / "sweep", 1, seed, without)
        run(tmp_path / "sweep", 2, seed, pairs)
    run(tmp_path / "sweep", None, 0, 0.25)
    reviews_page.collect([tmp_path / "sweep"])
    run(tmp_path / "again", 1, 0, 0.48)
    reviews_page.collect([tmp_path / "again"])
    rows = dict(line.strip("| ").split(" | ") for line in reviews_page.table("q15_windows").splitlines()[2:])
    assert list(rows)[:3] == ["`1`", "`2`", "`whole`"]
    assert (rows["`2`"], rows["`whole`"]) == ("80.3 ± 48.6", "25.0")
    assert (rows["`2` less `1`"], rows["`4` less `1`"]) == ("+11.0 ± 4.3", "–")
