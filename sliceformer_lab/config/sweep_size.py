"""The jobs of a sweep: counted before one of them is made, for ten letters can ask for a billion, and listed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from itertools import product

from hydra.core.override_parser.types import ChoiceSweep, Glob, Override, RangeSweep

from sliceformer_lab.config.compose import option_names
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


def split_jobs(overrides: Iterable[Override]) -> list[list[str]]:
    """The overrides of each job: all combinations of the values, where the last override varies fastest."""
    return [list(job) for job in product(*map(alternatives, overrides))]


def alternatives(override: Override) -> list[str]:
    """The words that an override gives to jobs: one for each of its values. Raises ConfigError for an interval."""
    if not override.is_sweep_override():
        return [str(override.input_line)]
    return [f"{override.get_key_element()}={value}" for value in values_of(override)]


def values_of(override: Override) -> Iterator[str]:
    """The values of an override as texts. Raises ConfigError for an interval and for too many."""
    check_sweep_size([override])
    if not override.is_sweep_override():
        yield override.get_value_element_as_str()
        return
    names: object = override.value()
    if isinstance(names, Glob):
        yield from names.filter(option_names(override.key_or_group))
    elif override.is_discrete_sweep():
        yield from override.sweep_string_iterator()
    else:
        raise ConfigError(f"{override.input_line}: has no values one by one; list them")
