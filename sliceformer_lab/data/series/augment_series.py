"""Random changes of training series: stretched in time, resized, with noise."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Warp:
    """How much a series may change: shares of its duration, its size, and its channels' deviation."""

    stretch: float
    resize: float
    noise: float


def warped(values: np.ndarray, warp: Warp) -> np.ndarray:
    """A series (L, C) changed by numpy's global generator, which a loader seeds. Its length stays.

    A random window, shorter than the series by up to `stretch`, is stretched to its length; then the series is
    multiplied by 1 - resize to 1 + resize, and gets normal noise of `noise` times each channel's deviation.
    """
    length = len(values)
    window = length * (1 - warp.stretch * np.random.random())
    start = np.random.random() * (length - window)
    if warp.stretch and length > 1:
        values = _interpolate(values, start + np.linspace(0, window - 1, length) if window > 1 else np.arange(length))
    if warp.resize:
        values = values * np.float32(1 + warp.resize * (2 * np.random.random() - 1))
    if warp.noise:
        deviation = np.sqrt(np.nanvar(values, axis=0) + 1e-12)
        values = values + (warp.noise * deviation * np.random.standard_normal(values.shape)).astype(np.float32)
    return values.astype(np.float32)


def _interpolate(values: np.ndarray, times: np.ndarray) -> np.ndarray:
    """The values at fractional steps, interpolated linearly; missing ones stay missing."""
    below = np.floor(times).astype(np.int64).clip(0, len(values) - 1)
    above = np.minimum(below + 1, len(values) - 1)
    part = (times - below).astype(np.float32)[:, None]
    mixed: np.ndarray = values[below] * (1 - part) + values[above] * part
    return mixed
