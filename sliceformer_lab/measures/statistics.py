"""Statistics of a few runs: intervals of a mean, exact paired tests, and the smallest difference that they can detect.

Results are (S,), one per seed; scores of single examples are (S, E).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy import optimize, stats

LEVEL = 0.05  # of tests; intervals cover 1 - LEVEL
POWER = 0.8  # of the test for which `smallest_difference` is computed
FEWEST_IN_INTERVAL = 3  # runs; for two, Student's interval is 9 standard deviations to either side
FEWEST_RUNS = 6  # an exact two-sided paired test needs as many to reach p < LEVEL: 2 / 2**6 = 0.031
MOST_EXACT = 20  # pairs for which all 2**20 signs are tried
QUANTILES = 4000  # over which a distribution is averaged
MOST_SIMULATED = 14  # pairs
SIMULATED = 1000  # cases of a simulation
BISECTIONS = 8
FLIPS = 100_000  # random signs that are tried for more than MOST_EXACT pairs

Values = Sequence[float] | np.ndarray


@dataclass(frozen=True)
class Interval:
    """A 95 % interval and the method that gave it."""

    low: float
    high: float
    how: str


def seed_interval(values: Values, resamples: int, seed: int, level: float = LEVEL) -> Interval | None:
    """The interval of the mean over seeds (S,) that covers 1 - level, 95 %; None for fewer than three values.

    Six or more values are resampled, with percentiles widened for few values (Hesterberg 2015, American Statistician
    69(4), section 4.4). For fewer, the range of the values, which no resample leaves, contains the median of the
    distribution with a probability of only 1 - 2**(1 - S) < 0.95, so Student's t is used.
    """
    results = np.asarray(values, dtype=np.float64)
    count = len(results)
    if count < FEWEST_IN_INTERVAL:
        return None
    if count < FEWEST_RUNS:
        half = float(student_half_width(results.std(ddof=1), count, level))
        return Interval(float(results.mean() - half), float(results.mean() + half), "Student's t")
    tail = float(stats.norm.cdf(-((count / (count - 1)) ** 0.5) * stats.t.ppf(1 - level / 2, count - 1)))
    means = results[np.random.default_rng(seed).integers(count, size=(resamples, count))].mean(axis=1)
    low, high = np.quantile(means, [tail, 1 - tail])
    return Interval(float(low), float(high), "bootstrap over seeds")


def student_half_width(std: np.ndarray | float, count: np.ndarray | int, level: float = LEVEL) -> np.ndarray:
    """Half of Student's 95 % interval of a mean from the standard deviation (n - 1) of `count` values; NaN for one."""
    half: np.ndarray = stats.t.ppf(1 - level / 2, np.asarray(count) - 1) * std / np.sqrt(count)
    return half


def example_interval(scores: np.ndarray, resamples: int, seed: int, level: float = LEVEL) -> Interval:
    """The interval of the mean of scores (S, E) over random draws of the E examples, for fixed models; 95 % by default.

    All S models are scored on the same examples, so an example is resampled with all its scores.
    """
    per_example = scores.mean(axis=0, dtype=np.float64)
    generator = np.random.default_rng(seed)
    count = len(per_example)
    means = [per_example[generator.integers(count, size=count)].mean() for _ in range(resamples)]
    low, high = np.quantile(means, [level / 2, 1 - level / 2])
    return Interval(float(low), float(high), "bootstrap over examples")


def smallest_difference(differences: Values) -> float | None:
    """The true mean difference that a paired t test with these (S,) count and spread detects with power 0.8.

    None for fewer than two pairs. The test is two-sided at 5 %. The noncentral t distribution is computed as a mean
    over the chi distribution of the sample spread, because scipy's own gives NaN for two pairs.
    """
    count = len(differences)
    if count < 2:
        return None
    limit = stats.t.ppf(1 - LEVEL / 2, count - 1)
    shares = (np.arange(QUANTILES) + 0.5) / QUANTILES
    limits = limit * np.sqrt(stats.chi2.ppf(shares, count - 1) / (count - 1))  # for each quantile of the spread

    def missing_power(shift: float) -> float:
        return float((stats.norm.cdf(shift - limits) + stats.norm.cdf(-shift - limits)).mean() - POWER)

    needed = optimize.brentq(missing_power, 0.0, 2 * limit + 10)
    return float(needed * np.std(np.asarray(differences, dtype=np.float64), ddof=1) / count**0.5)


def smallest_by_signs(differences: Values, num_tests: int) -> float | None:
    """The true mean difference that the exact sign-flip test detects with power 0.8 at the level 0.05 / num_tests.

    Differences are normal with the spread of these (S,); the power is simulated. None if S pairs cannot reach the
    level, however large the difference, for fewer than two pairs, and for more pairs than the simulation takes.
    """
    count, level = len(differences), LEVEL / max(1, num_tests)
    if count < 2 or count > MOST_SIMULATED or 2.0 ** (1 - count) >= level:
        return None
    return _detected_shift(count, level) * float(np.std(np.asarray(differences, dtype=np.float64), ddof=1))


@cache
def _detected_shift(count: int, level: float) -> float:
    """The mean of `count` normal values of spread 1 that the exact test finds in 80 % of simulated cases."""
    draws = np.random.default_rng(0).normal(size=(SIMULATED, count))
    signs = np.array([[1.0, *s] for s in itertools.product((1.0, -1.0), repeat=count - 1)])
    flipped = draws @ signs.T  # (draws, signs); a shift adds to each column its sum of signs
    sums = signs.sum(axis=1)

    def missing_power(shift: float) -> float:
        values = np.abs(flipped + shift * sums)
        p_values = (values >= values[:, :1] - 1e-12).mean(axis=1)
        return float((p_values < level).mean() - POWER)

    low, high = 0.0, 10.0
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if missing_power(middle) < 0 else (low, middle)
    return high


def sign_flip_test(differences: Values, seed: int = 0) -> float:
    """Two-sided p value of Fisher's permutation test of the mean of paired differences (S,) under random signs.

    Exact with all 2**S signs for up to 20 pairs; more pairs use 100,000 random signs. Raises ValueError without pairs.
    """
    values = np.asarray(differences, dtype=np.float64)
    count = len(values)
    if not count:
        raise ValueError("a paired test needs at least one pair")
    if count > MOST_EXACT:
        signs = np.random.default_rng(seed).choice([-1.0, 1.0], size=(FLIPS, count))
        return float((1 + _as_extreme(signs @ values, values).sum()) / (1 + FLIPS))
    sums = values[:1]  # keeps the sign of the first value, because flipping all signs changes no absolute value
    for value in values[1:]:
        sums = np.concatenate([sums + value, sums - value])
    return float(_as_extreme(sums, values).mean())


def _as_extreme(sums: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Which sums are at least as far from 0 as the sum of the values, up to rounding errors."""
    rounding = 1e-12 * np.abs(values).sum()
    extreme: np.ndarray = np.abs(sums) >= abs(values.sum()) - rounding
    return extreme


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's adjusted p values (1979) in the given order; those below 0.05 have a family-wise error below 5 %."""
    adjusted, largest = [1.0] * len(p_values), 0.0
    for rank, place in enumerate(np.argsort(p_values, kind="stable")):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[place]))
        adjusted[place] = largest
    return adjusted


@dataclass(frozen=True)
class PairedTest:
    """The differences of one comparison on equal seeds, and whether they are significant among all comparisons."""

    pairs: int
    difference: float | None  # mean over the pairs
    smallest: float | None  # the true difference that this number of pairs can detect
    p: float | None  # Holm-adjusted over the comparisons; None for fewer than six pairs
    verdict: str


def paired_tests(comparisons: Sequence[Sequence[float] | None], seed: int = 0) -> list[PairedTest | None]:
    """The test of each comparison, given as its differences (S,); None where there is nothing to compare.

    Holm adjusts over the comparisons with enough pairs to be significant.
    """
    tested = [i for i, pairs in enumerate(comparisons) if pairs is not None and len(pairs) >= FEWEST_RUNS]
    adjusted = holm([sign_flip_test(comparisons[i] or (), seed) for i in tested])
    p_values = dict(zip(tested, adjusted, strict=True))
    return [
        None if pairs is None else _paired_test(pairs, p_values.get(i), len(tested))
        for i, pairs in enumerate(comparisons)
    ]


def _paired_test(differences: Sequence[float], p: float | None, num_tests: int) -> PairedTest:
    count = len(differences)
    needed = math.floor(1 + math.log2(max(1, num_tests) / LEVEL)) + 1  # pairs with which num_tests * 2**(1 - n) < 5 %
    if not count:
        verdict = "no seed and split in common"
    elif p is None:
        verdict = f"not tested: {count} of {FEWEST_RUNS} pairs"
    elif is_significant(p, count):
        verdict = "significant"
    elif count < needed:
        verdict = f"not significant; {num_tests} tests need {needed} pairs"
    else:
        verdict = "not significant"
    mean = float(np.mean(differences)) if count else None
    return PairedTest(count, mean, smallest_difference(differences), p, verdict)


def is_significant(adjusted_p: float, pairs: int) -> bool:
    """Whether a difference is significant: enough pairs for an exact test, and an adjusted p value below LEVEL."""
    return pairs >= FEWEST_RUNS and adjusted_p < LEVEL
