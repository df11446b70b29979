"""The times of the rows of a series: read as numbers or dates, and values placed on a grid of equal steps."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from statistics import fmean
from typing import Any

import numpy as np

from sliceformer_lab.errors import DataError

MAX_TIMES_LONGER = 10  # that missing times may make a series; beyond, its times count as an order only
TOLERANCE = 0.05  # of a step, by which a time may miss the grid
DAY = re.compile(r"\d{8}")  # 20240131, which is also a number


def time_of(place: str, column: str | int, field: Any, days: bool) -> float:
    """A number, or the seconds of an ISO date, which is in UTC unless it names a zone. Raises DataError.

    Eight digits are a date if the times of the training table are such `days`.
    """
    text, time = str(field).strip(), math.nan
    if not (days and DAY.fullmatch(text)) and "_" not in text:
        with suppress(ValueError):
            time = float(text)
    if math.isnan(time):
        with suppress(ValueError):
            moment = datetime.fromisoformat(text)
            time = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    if not math.isfinite(time):
        raise DataError(f"{place}: {column} is {field!r}, expected a number or a date such as 2024-05-31T12:00")
    return time


def is_day(field: Any) -> bool:
    """Whether a field is a date of eight digits."""
    with suppress(ValueError):
        return DAY.fullmatch(text := str(field).strip()) is not None and bool(datetime.fromisoformat(text))
    return False


def commonest_step(series: Iterable[Sequence[float]]) -> float | None:
    """The commonest time from one row of a series to the next; None if no series has two.

    It is the mean of all that are nearly so long: those of a clock in seconds differ in their last digits.
    """
    steps = [step for times in series for step in np.diff(np.sort(times)).tolist() if step > 0]
    if not steps:
        return None
    commonest = Counter(float(f"{step:.9g}") for step in steps).most_common(1)[0][0]
    return fmean(step for step in steps if abs(step - commonest) <= TOLERANCE * commonest)


def in_time(place: str, times: Sequence[float], values: Sequence[np.ndarray], step: float) -> np.ndarray:
    """The values (L, C) by time; where all times are on a grid of `step`, those that are missing are NaN.

    Raises DataError for a time that comes twice.
    """
    order = np.argsort(times, kind="stable")
    sorted_times, rows = np.array(times)[order], np.stack(values)[order]
    if twice := [time for time, count in Counter(sorted_times.tolist()).items() if count > 1]:
        raise DataError(f"{place} has the time {twice[0]:g} twice; delete one")
    exact = (sorted_times - sorted_times[0]) / step
    if not exact[-1] < MAX_TIMES_LONGER * len(exact):
        return rows
    places = exact.round().astype(np.int64)
    if (np.abs(exact - places) >= TOLERANCE).any() or (np.diff(places) <= 0).any():
        return rows
    grid = np.full((places[-1] + 1, rows.shape[1]), np.nan)
    grid[places] = rows
    return grid
