"""The README's table of an audit follows from the committed results."""

from __future__ import annotations

from pathlib import Path

import audit_page
import pytest
from marked_sections import section


@pytest.mark.parametrize("page", audit_page.PAGES, ids=lambda page: page.name)
def test_table_is_made_from_the_committed_results(page: Path) -> None:
    assert section(page.read_text(encoding="utf-8"), "audit") == audit_page.table(audit_page.read()), "run `make docs`"
