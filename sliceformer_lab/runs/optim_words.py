"""Overrides that change the learning rate of a recipe, for searches. Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def rate_words(optim: Mapping[str, Any], factor: float) -> list[str]:
    """The overrides that multiply the learning rate of a node `optim`. The schedule keeps its shape."""
    names = ["lr", *(name for name in ("warmup_lr", "min_lr") if optim[name])]
    return [number_word(f"optim.{name}", optim[name] * factor) for name in names]


def number_word(key: str, value: float) -> str:
    """The override of an option by a number of six digits."""
    return f"{key}={float(f'{value:.6g}')}"
