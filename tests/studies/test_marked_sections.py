"""A script writes only what lies between its markers."""

from __future__ import annotations

import pytest
from marked_sections import section, with_section

PAGE = "above\n<!-- a: written by `make docs` -->\nold\n<!-- end of a -->\nbelow\n"


def test_only_the_section_changes() -> None:
    page = with_section(PAGE, "a", "new\nlines")
    assert section(page, "a") == "new\nlines"
    assert page == PAGE.replace("old", "new\nlines")


@pytest.mark.parametrize("lost", ["<!-- a: written by `make docs` -->", "<!-- end of a -->"])
def test_a_page_without_a_marker_is_refused_and_not_cut_off(lost: str) -> None:
    with pytest.raises(ValueError, match="the page lacks"):
        with_section(PAGE.replace(lost, ""), "a", "new")
