"""Every page of a study holds what its script makes of the committed results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import probe_maps
import pytest
import reviews_page
import swap_page
from intervals import correct
from marked_sections import section, with_section
from write_pages import STUDIES

PAGES = [
    pytest.param(file, page, id=f"{name}, {file.parent.name}/{file.stem}")
    for name, study in STUDIES.items()
    for file, page in study.pages
    if name != "attentions"  # test_attentions_page has it
]


@pytest.mark.parametrize(("file", "page"), PAGES)
def test_page_is_current(file: Path, page: Callable[[], str]) -> None:
    assert file.read_text(encoding="utf-8") == page(), "`make docs` writes it anew"


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
