"""What simple models read of series: distances under a warping of time, random convolutions, spectra.

Contents are series (L, C) with NaN where a value is missing; they may differ in length. Nothing here imports torch.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

Array = np.ndarray

NUM_KERNELS = 1000  # random convolutions, two features each
KERNEL_LENGTHS = (7, 9, 11)
MAX_STEPS = 512  # of a series to convolve; longer ones are resampled
WARPED_STEPS = 128  # to which series are resampled before their distances are computed
BAND_SHARE = 0.1  # of the steps that a warping of time may move a step
MAX_CELLS = 2e9  # of all tables of all pairs, above which no time is warped
SPECTRUM_STEPS = 512  # to which series are resampled before their spectra are computed


def random_convolutions(train: Sequence[Array], others: list[Sequence[Array]]) -> list[Array]:
    """ROCKET's features (n, 2 * NUM_KERNELS): of each random kernel the largest output, and the share of positive ones.

    A kernel has 7, 9 or 11 normal weights of mean 0 in each of some channels, a dilation up to the longest that fits, a
    uniform bias, and padding or none. Unlike the published code, series are cut or filled with zeros to one length, and
    there are 1,000 kernels instead of 10,000.
    Source: Dempster, Petitjean and Webb 2020.
    """
    parts, lengths = _standardise(train, others, MAX_STEPS)
    channels, steps = parts[0].shape[1:]
    random = np.random.default_rng(0)
    found: list[list[Array]] = [[] for _ in parts]
    for _ in range(NUM_KERNELS):
        size = int(random.choice(KERNEL_LENGTHS))
        dilation = int(2 ** random.uniform(0, np.log2(max(1.0, (lengths - 1) / (size - 1)))))
        chosen = random.choice(channels, int(2 ** random.uniform(0, np.log2(min(channels, size) + 1))), replace=False)
        weights = random.normal(size=(len(chosen), size)).astype(np.float32)
        weights -= weights.mean(axis=1, keepdims=True)
        bias, reach = np.float32(random.uniform(-1, 1)), (size - 1) * dilation
        padding = reach // 2 if random.random() < 0.5 or reach >= steps else 0
        for part, features in zip(parts, found, strict=True):
            sums = _convolve(part[:, chosen], weights, dilation, padding) + bias
            features += [sums.max(axis=1), (sums > 0).mean(axis=1)]
    return [np.stack(features, axis=1) for features in found]


def _convolve(series: Array, weights: Array, dilation: int, padding: int) -> Array:
    """Sums (n, steps) over the chosen channels of series (n, C, L)."""
    padded = np.pad(series, ((0, 0), (0, 0), (padding, padding)))
    steps = padded.shape[2] - (weights.shape[1] - 1) * dilation
    sums = np.zeros((len(series), steps), dtype=np.float32)
    for tap in range(weights.shape[1]):
        sums += np.einsum("ncl,c->nl", padded[:, :, tap * dilation : tap * dilation + steps], weights[:, tap])
    return sums


def warped_distances(train: Sequence[Array], others: list[Sequence[Array]]) -> list[Array]:
    """Distances (m, n) of other series to the training series under dynamic time warping; (n, n) zeros for these.

    A step may move by BAND_SHARE of the series, which are resampled to at most WARPED_STEPS. Distances are Euclidean
    where all tables together would have more than MAX_CELLS.
    """
    longest = max(len(series) for series in train)
    first, *rest = [_resample(part, min(longest, WARPED_STEPS)) for part in (train, *others)]
    band = max(1, round(BAND_SHARE * first.shape[2]))
    pairs = len(first) * sum(map(len, rest))
    if pairs * first.shape[2] * (2 * band + 1) * first.shape[1] > MAX_CELLS:
        band = 0
    scaled = _scaled_alike([first, *rest])
    return [
        np.zeros((len(first), len(first)), np.float32),
        *(_compute_distances(part, scaled[0], band) for part in scaled[1:]),
    ]


def _compute_distances(series: Array, train: Array, band: int) -> Array:
    """Squared distances (m, n) of series (m, C, L) and (n, C, L): the least cost of a path within a band."""
    if band == 0:
        flat, other = series.reshape(len(series), -1), train.reshape(len(train), -1)
        squares: Array = (flat**2).sum(axis=1)[:, None] + (other**2).sum(axis=1) - 2 * flat @ other.T
        return squares
    steps = series.shape[2]
    shape = (len(series), len(train))
    above: dict[int, Array] = {}
    for i in range(steps):
        row: dict[int, Array] = {}
        for j in range(max(0, i - band), min(steps, i + band + 1)):
            cost = np.zeros(shape, np.float32)
            for channel in range(series.shape[1]):
                cost += np.subtract.outer(series[:, channel, i], train[:, channel, j]) ** 2
            before = [found for found in (above.get(j), above.get(j - 1), row.get(j - 1)) if found is not None]
            if before:
                least = before[0] if len(before) == 1 else np.minimum(before[0], before[1])
                cost += np.minimum(least, before[2]) if len(before) == 3 else least
            row[j] = cost
        above = row
    return above[steps - 1]


def spectra(train: Sequence[Array], others: list[Sequence[Array]]) -> list[Array]:
    """The logarithm of the power at each frequency, and the mean and deviation of each channel (n, F), in any unit."""
    longest = min(max(len(series) for series in train), SPECTRUM_STEPS)
    found = []
    for part in _scaled_alike([_resample(series, longest) for series in (train, *others)]):
        mean, std = part.mean(axis=2, keepdims=True), part.std(axis=2, keepdims=True)
        power = np.abs(np.fft.rfft((part - mean) * np.hanning(longest + 2)[1:-1], axis=2)) ** 2
        found.append(np.concatenate([np.log(power + 1e-8), mean, std], axis=2).reshape(len(part), -1))
    return found


def _standardise(train: Sequence[Array], others: list[Sequence[Array]], most: int) -> tuple[list[Array], int]:
    """Series (n, C, L) standardised by the training series, zeros beyond their ends; and their median length."""
    longest = max(len(series) for series in train)
    factor = min(1.0, most / longest)
    parts = []
    for part in (train, *others):
        steps = round(longest * factor)
        filled = np.full((len(part), train[0].shape[1], steps), np.nan, dtype=np.float32)
        for row, series in zip(filled, part, strict=True):
            values = _at_length(series[:longest], max(1, round(min(len(series), longest) * factor)))
            row[:, : len(values)] = values.T
        parts.append(filled)
    mean = np.nanmean(parts[0], axis=(0, 2), keepdims=True)
    std = np.nanstd(parts[0], axis=(0, 2), keepdims=True)
    scaled = [np.nan_to_num((part - mean) / np.where(std > 0, std, 1)) for part in parts]
    return scaled, max(2, int(np.median([len(series) for series in train]) * factor))


def _scaled_alike(parts: list[Array]) -> list[Array]:
    mean, std = parts[0].mean(axis=(0, 2), keepdims=True), parts[0].std(axis=(0, 2), keepdims=True)
    return [((part - mean) / np.where(std > 0, std, 1)).astype(np.float32) for part in parts]


def _resample(series: Sequence[Array], steps: int) -> Array:
    """Series (n, C, steps) of one length."""
    return np.stack([_at_length(one, steps).T for one in series]).astype(np.float32)


def _at_length(series: Array, steps: int) -> Array:
    """A series (L, C) at `steps` times, interpolated linearly between its known values."""
    times = np.linspace(0, len(series) - 1, steps)
    columns = []
    for channel in np.asarray(series, dtype=np.float64).T:
        known = np.flatnonzero(~np.isnan(channel))
        columns.append(np.interp(times, known, channel[known]) if len(known) else np.zeros(steps))
    return np.stack(columns, axis=1)
