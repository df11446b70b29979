"""The sections of a page that a script writes anew: what lies between two markers."""

from __future__ import annotations


def section(page: str, name: str) -> str:
    """The text between the markers of the section `name`. Raises ValueError if the page lacks one."""
    return _parts(page, name)[1].strip("\n")


def with_section(page: str, name: str, text: str) -> str:
    """The page with `text` between the markers of the section `name`. Raises ValueError if the page lacks one."""
    before, _, after = _parts(page, name)
    return f"{before}{_begin(name)}\n{text}\n{_end(name)}{after}"


def _parts(page: str, name: str) -> tuple[str, str, str]:
    before, begin, rest = page.partition(_begin(name))
    old, end, after = rest.partition(_end(name))
    if not begin or not end:
        raise ValueError(f"the page lacks {_begin(name)} or {_end(name)} after it")
    return before, old, after


def _begin(name: str) -> str:
    return f"<!-- {name}: written by `make docs` -->"


def _end(name: str) -> str:
    return f"<!-- end of {name} -->"
