"""Every page of a study holds what its script makes of the committed results."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import audit_page
import dense_page
import evidence
import experiment_page
import gpu_kernels
import leaderboard
import own_data_table
import pytest
import reviews_page
import swap_page
from intervals import correct
from marked_sections import section

SCRIPTS = (
    "claims",
    "causal_page",
    "goals_page",
    "int8",
    "linear_rank",
    "pretraining_page",
    "probe_maps",
    "reach_page",
    "reviews_page",
    "swap_page",
    "training_page",
)
SECTIONS: list[tuple[Path, str, Callable[[], str]]] = [
    (audit_page.PAGE, "audit", lambda: audit_page.table(audit_page.read())),
    (experiment_page.README, experiment_page.VERDICT, experiment_page.verdict),
    (evidence.PAGE, "evidence", lambda: evidence.page_text(evidence.read(evidence.STUDY))),
    (gpu_kernels.PAGE, "kernels", gpu_kernels.table),
    (own_data_table.PAGE, "sets", lambda: own_data_table.table(own_data_table.declared(), own_data_table.read_lines())),
]


@pytest.mark.parametrize("name", SCRIPTS)
def test_page_is_current(name: str) -> None:
    script = import_module(name)
    assert script.PAGE.read_text(encoding="utf-8") == script.page(), "`make docs` writes it anew"


def test_pages_of_lines_are_current() -> None:
    found = json.loads(dense_page.RESULTS.read_text(encoding="utf-8"))
    assert dense_page.PAGE.read_text(encoding="utf-8") == dense_page.page(found)
    assert leaderboard.PAGE.read_text(encoding="utf-8") == leaderboard.page(leaderboard.read())


@pytest.mark.parametrize(("page", "name", "text"), SECTIONS)
def test_section_is_current(page: Path, name: str, text: Callable[[], str]) -> None:
    assert section(page.read_text(encoding="utf-8"), name) == text(), "`make docs` writes it anew"


def test_a_difference_of_two_swaps_is_paired_within_each_task() -> None:
    lines = swap_page.read_lines(swap_page.TASKS)
    ours, theirs = ("csp", "all", "layers"), ("mean", "all", "layers")
    gaps = [correct(lines[ours][task]) - correct(lines[theirs][task]) for task in swap_page.TASKS]
    found = swap_page.difference(lines, ours, theirs)
    assert found.mean == pytest.approx(sum(gap.mean() for gap in gaps) / 2)
    assert found.variance == pytest.approx(sum(gap.var(ddof=1) / len(gap) for gap in gaps) / 4)


def test_every_table_for_the_reviews_is_of_a_preset() -> None:
    folder = reviews_page.PAGE.parent / "conf" / "study" / "csp_reviews"
    assert set(reviews_page.CONTRASTS) <= {file.stem for file in folder.glob("*.yaml")}
