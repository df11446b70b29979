"""Rows of a benchmark as its tests need them."""

from __future__ import annotations

from typing import Any

from sliceformer_lab.commands.benchmark.rows import SpeedRow

MADE_UP = {
    "suite": "layers",
    "workload": "layer",
    "kind": "layer",
    "device": "cpu",
    "dtype": "float32",
    "threads": 1,
    "compiled": False,
    "batch": 2,
    "tokens": 64,
    "channels": 8,
    "group_size": None,
    "mode": "training",
}


def made_row(name: str, **facts: Any) -> SpeedRow:
    """The row "method (way)" of a training step at N=64 on a CPU; `facts` in place of what is made up here."""
    method, _, way = name.removesuffix(")").partition(" (")
    return SpeedRow(**{**MADE_UP, "method": method, "way": way, "name": name, **facts})
