"""From the values of a series to the numbers that a model reads: scaled, without gaps, cut into patches."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from sliceformer_lab.data.series.table_form import TableLayout
from sliceformer_lab.errors import DataError, RunFolderError
from sliceformer_lab.runs.files import write_json

CODING_FILE = "series.json"  # in a run folder
MIN_DEVIATION = 1e-8  # of a channel, as a share of its mean, below which it counts as constant


@dataclass(frozen=True)
class SeriesCoding:
    """How a series (L, C) becomes patches (N, patch_len * features), with the statistics of the training series.

    Each channel is standardised. A missing value (NaN) is interpolated linearly between its neighbours in time, at an
    end it repeats the nearest one, and in a channel without any it is the training mean. If the training data have
    gaps, each channel gets a second one of ones and zeros: observed or missing. The last patch is filled with zeros.
    """

    mean: tuple[float, ...]  # (C,)
    std: tuple[float, ...]  # (C,)
    patch_len: int
    max_len: int  # steps; a longer series is cut
    marks_gaps: bool = False
    own_scale: bool = False  # each series is standardised by itself first
    table: TableLayout | None = None  # of the training series, if they come from tables

    @property
    def channels(self) -> int:
        """The channels of a series."""
        return len(self.mean)

    @property
    def features(self) -> int:
        """Numbers of a time step: the channels, and whether each is observed."""
        return self.channels * (2 if self.marks_gaps else 1)

    def count(self, lengths: np.ndarray) -> np.ndarray:
        """The patches of series with these numbers of steps."""
        patches: np.ndarray = -(-np.minimum(lengths, self.max_len) // self.patch_len)
        return patches

    def patches(self, values: np.ndarray) -> np.ndarray:
        """The patches (N, patch_len * features) float32 of a series (L, C)."""
        steps = self.steps(values)
        missing = -len(steps) % self.patch_len
        filled = np.pad(steps, ((0, missing), (0, 0)))
        return filled.reshape(-1, self.patch_len * self.features)

    def steps(self, values: np.ndarray) -> np.ndarray:
        """The numbers (L, features) float32 of each step."""
        values = np.asarray(values[: self.max_len], dtype=np.float32)
        observed = ~np.isnan(values)
        if self.own_scale:
            values = own_scale(values)
        mean, std = (np.asarray(numbers, dtype=np.float32) for numbers in (self.mean, self.std))
        scaled: np.ndarray = (values - mean) / std
        if not observed.all():
            scaled = np.stack([_without_gaps(channel) for channel in scaled.T], axis=1)
        if self.marks_gaps:
            scaled = np.concatenate([scaled, observed.astype(np.float32)], axis=1)
        return np.asarray(scaled, dtype=np.float32)

    def write(self, folder: Path) -> None:
        write_json(folder / CODING_FILE, asdict(self))

    @classmethod
    def read(cls, folder: Path) -> Self:
        """What `write` wrote. Raises RunFolderError."""
        try:
            return cls.from_json(json.loads((folder / CODING_FILE).read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise RunFolderError(f"{folder / CODING_FILE} cannot be read ({error!r})") from error

    @classmethod
    def from_json(cls, content: dict[str, object]) -> Self:
        """The coding that `asdict` and JSON made plain."""
        lists: dict[str, Any] = {name: tuple(x) if isinstance(x, list) else x for name, x in content.items()}
        table = lists.get("table")  # which the first runs have not
        return cls(**lists | {"table": table and TableLayout.from_json(table)})


def as_series(array: object, name: str) -> np.ndarray:
    """The series (L, C) in an array (L,) or (L, C), NaN where a value is missing.

    Raises DataError, which calls it `name`, for anything else, and for numbers that 32 bits do not hold.
    """
    if not isinstance(array, np.ndarray) or array.ndim not in (1, 2) or array.dtype.kind not in "fiub":
        found = f"{array.dtype} {array.shape}" if isinstance(array, np.ndarray) else type(array).__name__
        raise DataError(f"{name} is {found}, not a series: numbers of (steps,) or (steps, channels)")
    values = array.reshape(len(array), *array.shape[1:] or (1,))
    if not values.size or np.isnan(values).all():
        raise DataError(f"{name} has no values; leave it out")
    with np.errstate(over="ignore"):
        infinite = np.isinf(values.astype(np.float32)).any(axis=1)
    if infinite.any():
        step = int(infinite.argmax()) + 1
        raise DataError(f"{name} has an infinite value in step {step}; correct it, or write NaN if it is missing")
    return values


def own_scale(values: np.ndarray) -> np.ndarray:
    """A series (L, C) with mean 0 and deviation 1 in each channel."""
    mean, std = channel_statistics([values], values.shape[1])
    scaled: np.ndarray = (values - mean) / std
    return scaled


def channel_statistics(series: Iterable[np.ndarray], channels: int) -> tuple[np.ndarray, np.ndarray]:
    """Mean and deviation (C,) float32 of the known values of many series (L, C), 0 and 1 where there are none."""
    first = np.full(channels, np.nan)  # known value, from which deviations are summed: squares of values lose digits
    count, total, squares = (np.zeros(channels) for _ in range(3))
    for values in series:
        known, exact = ~np.isnan(values), values.astype(np.float64)
        some = np.isnan(first) & known.any(axis=0)
        first[some] = exact[known.argmax(axis=0), np.arange(channels)][some]
        shifted = np.nan_to_num(exact - first)
        count += known.sum(axis=0)
        total += shifted.sum(axis=0)
        squares += (shifted**2).sum(axis=0)
    deviation = total / np.maximum(count, 1)
    std = np.sqrt(np.maximum(squares / np.maximum(count, 1) - deviation**2, 0))
    mean = np.nan_to_num(first) + deviation
    constant = std <= MIN_DEVIATION * np.abs(mean)
    return mean.astype(np.float32), np.where(constant, 1, std).astype(np.float32)


def _without_gaps(channel: np.ndarray) -> np.ndarray:
    """A channel (L,) with numbers in place of NaN."""
    known = np.flatnonzero(~np.isnan(channel))
    if not len(known):
        return np.zeros_like(channel)
    filled: np.ndarray = np.interp(np.arange(len(channel)), known, channel[known])
    return filled


def stretched(values: np.ndarray, stretch: float) -> np.ndarray:
    """A series (L, C) changed by numpy's global generator, which a loader seeds. Its length stays.

    A random window, shorter than the series by up to the share `stretch`, is stretched to its length.
    """
    length = len(values)
    if not stretch or length < 2:
        return values
    window = length * (1 - stretch * np.random.random())
    start = np.random.random() * (length - window)
    times = start + np.linspace(0, window - 1, length) if window > 1 else np.arange(length)
    below = np.floor(times).astype(np.int64).clip(0, length - 1)
    above = np.minimum(below + 1, length - 1)
    part = (times - below).astype(np.float32)[:, None]  # linear interpolation; missing values stay missing
    mixed: np.ndarray = values[below] * (1 - part) + values[above] * part
    return mixed
