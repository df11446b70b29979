"""The README's table of an audit follows from the committed results."""

from __future__ import annotations

from pathlib import Path

import audit_page
import pytest
from marked_sections import section


@pytest.mark.parametrize("page", audit_page.PAGES, ids=lambda page: page.name)
def test_table_is_made_from_the_committed_results(page: Path) -> None:
    assert section(page.read_text(encoding="utf-8"), "audit") == audit_page.table(audit_page.read()), "run `make docs`"


def test_only_rows_that_differ_on_both_axes_are_bold() -> None:
    found = audit_page.read()
    assert set(audit_page.separated_rows(found)) == {"identity", "pooling"}  # the convolution at equal time alone
    table = audit_page.table(found)
    assert "**+3.78 ± 1.64**" in table and "+1.36 ± 1.13" in table and "**+1.36" not in table


def test_an_interval_over_seeds_and_texts_is_wider_than_either() -> None:
    axis = audit_page.read()["axes"]["params"]
    for outcome in axis["outcomes"]:
        interval = audit_page.estimates(axis)[outcome["against"]].interval()
        for part in ("over_seeds", "over_examples"):
            assert interval.high - interval.low > 0.95 * (outcome[part]["high"] - outcome[part]["low"])
