"""What a handful of runs can tell: intervals of a mean, exact paired tests, and how small a difference they can show.

Arrays of figures are (S,), one per seed; of scores of single examples (S, E).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import optimize, stats

LEVEL = 0.05  # intervals leave out so much, and tests err so often
POWER = 0.8  # with which a difference is called one that so many runs could show
FEWEST_RUNS = 6  # with which an exact two-sided paired test can fall below it: 2 / 2**6 = 0.031
MOST_EXACT = 20  # pairs whose 2**20 signs are all tried
QUANTILES = 4000  # at which a distribution is averaged over
FLIPS = 100_000  # random signs of more pairs than that

Values = Sequence[float] | np.ndarray


@dataclass(frozen=True)
class Interval:
    """A 95 % interval, and how it was made."""

    low: float
    high: float
    how: str


def seed_interval(values: Values, resamples: int, seed: int) -> Interval | None:
    """The 95 % interval of the mean over seeds (S,); None of fewer than two.

    Six and more are resampled, with the percentiles widened for few values (Hesterberg 2015, American Statistician
    69(4), section 4.4). Of fewer no resample leaves the span of the values, which has the middle of the distribution
    in it with probability 1 - 2**(1 - S) < 0.95 only, so Student's t takes their place.
    """
    figures = np.asarray(values, dtype=np.float64)
    count = len(figures)
    if count < 2:
        return None
    if count < FEWEST_RUNS:
        half = float(student_half_width(figures.std(ddof=1), count))
        return Interval(float(figures.mean() - half), float(figures.mean() + half), "Student's t")
    tail = float(stats.norm.cdf(-((count / (count - 1)) ** 0.5) * stats.t.ppf(1 - LEVEL / 2, count - 1)))
    means = figures[np.random.default_rng(seed).integers(count, size=(resamples, count))].mean(axis=1)
    low, high = np.quantile(means, [tail, 1 - tail])
    return Interval(float(low), float(high), "bootstrap over seeds")


def student_half_width(std: np.ndarray | float, count: np.ndarray | int) -> np.ndarray:
    """Half of Student's 95 % interval of a mean, from the standard deviation (n - 1) of `count` values; NaN of one."""
    half: np.ndarray = stats.t.ppf(1 - LEVEL / 2, np.asarray(count) - 1) * std / np.sqrt(count)
    return half


def example_interval(scores: np.ndarray, resamples: int, seed: int) -> Interval:
    """The 95 % interval of the mean of scores (S, E) for another draw of the E examples, the S models fixed.

    All models are scored on the same examples, so an example is drawn with all its scores.
    """
    per_example = scores.mean(axis=0, dtype=np.float64)
    generator = np.random.default_rng(seed)
    count = len(per_example)
    means = [per_example[generator.integers(count, size=count)].mean() for _ in range(resamples)]
    low, high = np.quantile(means, [LEVEL / 2, 1 - LEVEL / 2])
    return Interval(float(low), float(high), "bootstrap over examples")


def smallest_difference(differences: Values) -> float | None:
    """The true mean difference that a paired t test of so many pairs, as scattered as these (S,), finds in 80 %.

    None of fewer than two pairs. Two-sided at 5 %: from the noncentral t distribution, as the mean over the spread that
    so many pairs may show by chance (scipy's own is not a number for two pairs).
    """
    count = len(differences)
    if count < 2:
        return None
    limit = stats.t.ppf(1 - LEVEL / 2, count - 1)
    shares = (np.arange(QUANTILES) + 0.5) / QUANTILES
    limits = limit * np.sqrt(stats.chi2.ppf(shares, count - 1) / (count - 1))  # of a normal deviate, spread by spread

    def lacking(shift: float) -> float:
        return float((stats.norm.cdf(shift - limits) + stats.norm.cdf(-shift - limits)).mean() - POWER)

    needed = optimize.brentq(lacking, 0.0, 2 * limit + 10)
    return float(needed * np.std(np.asarray(differences, dtype=np.float64), ddof=1) / count**0.5)


def sign_flip_test(differences: Values, seed: int = 0) -> float:
    """The two-sided p value of paired differences (S,) under random signs: Fisher's permutation test of their mean.

    Exact up to 20 pairs, all 2**S signs tried; of more, 100,000 random ones. Raises ValueError without a difference.
    """
    values = np.asarray(differences, dtype=np.float64)
    count = len(values)
    if not count:
        raise ValueError("a paired test needs at least one pair")
    if count > MOST_EXACT:
        signs = np.random.default_rng(seed).choice([-1.0, 1.0], size=(FLIPS, count))
        return float((1 + _as_extreme(signs @ values, values).sum()) / (1 + FLIPS))
    sums = values[:1]  # the sign of the first is kept: turning all of them changes no absolute value
    for value in values[1:]:
        sums = np.concatenate([sums + value, sums - value])
    return float(_as_extreme(sums, values).mean())


def _as_extreme(sums: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Which sums lie at least as far from 0 as that of the values; equal ones differ in rounding."""
    rounding = 1e-12 * np.abs(values).sum()
    extreme: np.ndarray = np.abs(sums) >= abs(values.sum()) - rounding
    return extreme


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's adjusted p values (1979), in the order given: any below 0.05 keep the family's error below 5 %."""
    adjusted, largest = [1.0] * len(p_values), 0.0
    for rank, place in enumerate(np.argsort(p_values, kind="stable")):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[place]))
        adjusted[place] = largest
    return adjusted


def is_significant(adjusted_p: float, pairs: int) -> bool:
    """Whether a difference may be called significant: an exact test of enough pairs, adjusted for the table."""
    return pairs >= FEWEST_RUNS and adjusted_p < LEVEL
