"""The table of the page on classes of pixels follows from the committed runs."""

from __future__ import annotations

import json

import dense_page
from marked_sections import section


def test_the_table_of_the_page_follows_from_the_runs() -> None:
    shown = section(dense_page.PAGE.read_text(encoding="utf-8"), "camvid")
    assert shown == dense_page.table(json.loads(dense_page.RESULTS.read_text(encoding="utf-8")))
