"""The table of the page on classes of pixels follows from the committed runs."""

from __future__ import annotations

import json

import dense_page


def test_verdict_and_table_of_the_page_follow_from_the_audit() -> None:
    found = json.loads(dense_page.RESULTS.read_text(encoding="utf-8"))
    assert dense_page.PAGE.read_text(encoding="utf-8") == dense_page.page(found)
