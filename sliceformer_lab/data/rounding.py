"""Numbers that differ too little for 32 bits, in inputs and in what is learned."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sliceformer_lab.errors import DataError

MAX_ROUNDING = 1e-4  # of the range of a column, or of a cloud's size, by which float32 may change a number


def check_targets(origin: Path | str, rows: Sequence[Any], names: Sequence[str] = ()) -> None:
    """Raises DataError for a column of the numbers to learn (n, T) that float32 would round visibly."""
    if len(rows) and (fault := find_rounding([np.array(rows, dtype=np.float64)], names, "target")):
        raise DataError(f"{origin}: {fault}")


def find_rounding(parts: Sequence[np.ndarray], names: Sequence[str] = (), kind: str = "channel") -> str | None:
    """What is wrong with a column of arrays (n, C) that float32 would round visibly; None if nothing is.

    So it is with the seconds of Unix time within a day: near 1.7e9 neighbouring numbers are 128 apart. A column without
    a name is called by `kind` and its number.
    """
    zeros = np.zeros(parts[0].shape[1])
    low, high, error = zeros + np.inf, zeros - np.inf, zeros
    for part in parts:
        exact = part.astype(np.float64)
        with np.errstate(over="ignore"):
            changes = np.abs(exact.astype(np.float32) - exact)
        low, high = np.fmin(low, np.fmin.reduce(exact)), np.fmax(high, np.fmax.reduce(exact))
        error = np.fmax(error, np.fmax.reduce(changes))
    extent = high - low
    if not (rounded := np.flatnonzero((extent > 0) & (error > MAX_ROUNDING * extent))).size:
        return None
    column = rounded[0]
    return (
        f"{names[column] if names else f'{kind} {column + 1}'} has values from {low[column]:.10g} to "
        f"{high[column]:.10g}, which differ too little for 32 bits; subtract an offset from all its values"
    )
