"""Compares a YAML with the signature that it configures."""

from __future__ import annotations

from typing import Any


def folded(name: str) -> str:
    """A class name or a file name, comparable with the other."""
    return name.replace("_", "").lower()


def as_yaml(value: Any) -> Any:
    """A default as YAML spells it: tuples are lists."""
    return list(value) if isinstance(value, tuple) else value
