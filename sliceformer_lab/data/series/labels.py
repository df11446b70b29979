"""The labels of series as they are written, as classes and as numbers."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from decimal import Decimal

NUMERAL = re.compile(r"[+-]?[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]{1,2})?")


def as_whole_numbers(labels: list[str]) -> list[str]:
    """Labels that are all whole numbers, 1.0000e+00, as plain ones, 1, by their exact value; else as they are."""
    if not all(map(NUMERAL.fullmatch, labels)):
        return labels
    numbers = [Decimal(label) for label in labels]
    return [f"{int(number)}" for number in numbers] if all(n == n.to_integral_value() for n in numbers) else labels


def merged_spellings(labels: Sequence[str], classes: Sequence[str]) -> list[str]:
    """The spellings of the first class that has several, in the order of their first labels; [] if none has."""
    spellings: dict[str, dict[str, None]] = {}
    for label, name in zip(labels, classes, strict=True):
        spellings.setdefault(name, {})[label] = None
    return next((list(found) for found in spellings.values() if len(found) > 1), [])


def number_first(name: str) -> tuple[float, str]:
    """A key that sorts numbers by value, and words behind them."""
    try:
        return float(name), name
    except ValueError:
        return math.inf, name
