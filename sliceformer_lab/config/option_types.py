"""Types of options with a range, checked when a node of the configuration is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

from pydantic import AfterValidator, Field


def _check_odd(number: int) -> int:
    if number % 2 == 0:
        raise ValueError("should be odd")
    return number


Natural = Annotated[int, Field(ge=0)]
Count = Annotated[int, Field(ge=1)]
EvenCount = Annotated[int, Field(ge=2, multiple_of=2)]
OddCount = Annotated[int, Field(ge=1), AfterValidator(_check_odd)]  # of tokens in a window, which has a middle
NonNegative = Annotated[float, Field(ge=0)]
Seed = Annotated[int, Field(ge=0, lt=2**32)]  # as large as numpy's generators take
Workers = Annotated[int, Field(ge=0, le=256)]  # processes that prepare data
Processes = Annotated[int, Field(ge=1, le=256)]
Positive = Annotated[float, Field(gt=0)]
Fraction = Annotated[float, Field(ge=0, lt=1)]  # a share that cannot be everything: dropout, validation data
Share = Annotated[float, Field(ge=0, le=1)]
Name = Annotated[str, Field(min_length=1)]


def check_lists(lists: Mapping[str, Sequence[object]]) -> None:
    """Raises ValueError for a list that is empty or names something twice. Keys: their words on the command line."""
    for word, values in lists.items():
        if not values:
            raise ValueError(f"{word}=[]: name at least one")
        if twice := {str(value) for value in values if values.count(value) > 1}:
            raise ValueError(f"{word}: names {', '.join(sorted(twice))} twice")
