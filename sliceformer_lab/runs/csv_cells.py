"""Cells of CSV files: what a run quotes is text, which no spreadsheet executes."""

from __future__ import annotations

FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


def csv_cell(value: object) -> object:
    """A value of a CSV file; a text that a spreadsheet would execute as a formula begins with an apostrophe."""
    if not isinstance(value, str) or not value.startswith(FORMULA) or _is_number(value):
        return value
    return f"'{value}"


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
