"""Every page of a study holds what its script makes of the committed results."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import audit_page
import dense_page
import evidence
import experiment_page
import gpu_kernels
import leaderboard
import own_data_table
import probe_maps
import pytest
import reviews_page
import swap_page
from intervals import correct
from marked_sections import section, with_section

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


def test_every_row_of_the_tables_of_probes_was_run() -> None:
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


MARKED = "above\n<!-- a: written by `make docs` -->\nold\n<!-- end of a -->\nbelow\n"


def test_only_the_section_changes() -> None:
    page = with_section(MARKED, "a", "new\nlines")
    assert section(page, "a") == "new\nlines"
    assert page == MARKED.replace("old", "new\nlines")


@pytest.mark.parametrize("lost", ["<!-- a: written by `make docs` -->", "<!-- end of a -->"])
def test_a_page_without_a_marker_is_refused_and_not_cut_off(lost: str) -> None:
    with pytest.raises(ValueError, match="the page lacks"):
        with_section(MARKED.replace(lost, ""), "a", "new")
