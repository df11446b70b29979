"""Differences and means of scores with their intervals, as the pages of the swaps write them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sliceformer_lab.measures.statistics import Estimate, estimate_crossed


def correct(line: Mapping[str, Any]) -> np.ndarray:
    """Whether each test text was right: (E,)."""
    bits = np.unpackbits(np.frombuffer(bytes.fromhex(line["correct"]), np.uint8), count=line["size"])
    return bits.astype(np.float64)


def mean_estimate(parts: Sequence[Estimate]) -> Estimate:
    """The mean of estimates of several tasks, whose variances add."""
    mean = sum(part.mean for part in parts) / len(parts)
    variance = sum(part.variance for part in parts) / len(parts) ** 2
    alone = [part.over_seeds for part in parts if part.over_seeds is not None]  # of few seeds
    over_seeds = mean_estimate(alone) if alone else None
    return Estimate(mean, variance, min(part.df for part in parts), parts[0].over, over_seeds)


def format_mean(table: np.ndarray | None) -> str:
    """The mean of scores (S, E) in percent and the half of its interval."""
    if table is None:
        return "–"
    one = estimate_crossed(table)
    return f"{100 * one.mean:.1f} ± {100 * one.interval().half_width:.1f}"
