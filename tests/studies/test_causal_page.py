"""The table of studies/causal.md is that of the committed results."""

from __future__ import annotations

import causal_page


def test_the_committed_page_holds_the_committed_results() -> None:
    assert causal_page.page() == causal_page.PAGE.read_text(encoding="utf-8")
    assert all(f"| `{name}` |" in causal_page.table() for name in ("mha", "csp_causal", "identity"))
