"""Random changes of training series: stretched in time."""

import numpy as np


def stretched(values: np.ndarray, stretch: float) -> np.ndarray:
    """A series (L, C) changed by numpy's global generator, which a loader seeds. Its length stays.

    A random window, shorter than the series by up to the share `stretch`, is stretched to its length.
    """
    length = len(values)
    if not stretch or length < 2:
        return values
    window = length * (1 - stretch * np.random.random())
    start = np.random.random() * (length - window)
    return _interpolate(values, start + np.linspace(0, window - 1, length) if window > 1 else np.arange(length))


def _interpolate(values: np.ndarray, times: np.ndarray) -> np.ndarray:
    """The values at fractional steps, interpolated linearly; missing ones stay missing."""
    below = np.floor(times).astype(np.int64).clip(0, len(values) - 1)
    above = np.minimum(below + 1, len(values) - 1)
    part = (times - below).astype(np.float32)[:, None]
    mixed: np.ndarray = values[below] * (1 - part) + values[above] * part
    return mixed
