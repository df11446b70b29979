"""Counts the jobs of a sweep before one of them is made: ten letters can ask for a billion."""

from __future__ import annotations

import math
from collections.abc import Iterable

from hydra.core.override_parser.types import ChoiceSweep, Override, RangeSweep

from sliceformer_lab.errors import ConfigError

MAX_SWEEP_JOBS = 10_000


def check_sweep_size(overrides: Iterable[Override], factor: int = 1) -> None:
    """Raises ConfigError if all combinations of the values, `factor` times, are more than MAX_SWEEP_JOBS or none."""
    total: float = factor
    for override in overrides:
        number = _num_values(override.value())
        if not number:
            raise ConfigError(f"{override.input_line}: has no values")
        total *= number
        if not total <= MAX_SWEEP_JOBS:
            raise ConfigError(f"{override.input_line}: more than {MAX_SWEEP_JOBS:,} jobs; give fewer values")


def _num_values(value: object) -> float:
    """How many values an override has, without listing them; 0 for a range that has no end or no value."""
    if isinstance(value, ChoiceSweep):
        return len(value.list)
    if not isinstance(value, RangeSweep) or value.start is None or value.stop is None:
        return 1
    number = (value.stop - value.start) / value.step if value.step else 0.0
    return math.ceil(number) if 0 < number < math.inf else max(0.0, number)
