"""Statistics of a few runs: intervals of a mean, exact paired tests, and the smallest difference that they can detect.

Results are (S,), one per seed; scores of single examples are (S, E).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import optimize, stats

LEVEL = 0.05  # of tests; intervals cover 1 - LEVEL
POWER = 0.8  # of the test for which `smallest_difference` is computed
FEWEST_IN_INTERVAL = 3  # runs; for two, Student's interval is 9 standard deviations to either side
FEWEST_RUNS = 6  # an exact two-sided paired test needs as many to reach p < LEVEL: 2 / 2**6 = 0.031
MOST_EXACT = 20  # pairs for which all 2**20 signs are tried
MAX_SEEDS = 1000  # that `seeds_needed` considers
QUANTILES = 4000  # over which a distribution is averaged
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


@dataclass(frozen=True)
class Estimate:
    """A mean, the variance of that mean, and the degrees of freedom of that variance. All tests are Student's."""

    mean: float
    variance: float
    df: float
    over: str  # what was drawn at random: "seeds", "examples", "seeds and examples"

    def interval(self, level: float = LEVEL) -> Interval:
        """The interval that covers 1 - level, 95 %."""
        half = float(stats.t.ppf(1 - level / 2, self.df)) * self.variance**0.5
        return Interval(self.mean - half, self.mean + half, f"Student's t over {self.over}")

    def lower_limit(self, level: float = LEVEL) -> float:
        """The one-sided limit that lies below the true mean in 1 - level of all cases, 95 %."""
        return self.mean - float(stats.t.ppf(1 - level, self.df)) * math.sqrt(self.variance)

    def p(self) -> float:
        """The two-sided p value of a true mean of 0."""
        if self.variance == 0:
            return 1.0 if self.mean == 0 else 0.0
        return float(2 * stats.t.sf(abs(self.mean) / self.variance**0.5, self.df))

    def equivalence_p(self, margin: float) -> float:
        """The larger p value of the two one-sided tests of |mean| < margin (Schuirmann 1987)."""
        if self.variance == 0:
            return 0.0 if abs(self.mean) < margin else 1.0
        return float(stats.t.sf((margin - abs(self.mean)) / self.variance**0.5, self.df))


def estimate_over_seeds(values: Values) -> Estimate | None:
    """The mean of (S,) with the variance over seeds alone; None for fewer than two."""
    results = np.asarray(values, dtype=np.float64)
    count = len(results)
    if count < 2:
        return None
    return Estimate(float(results.mean()), float(results.var(ddof=1) / count), count - 1, "seeds")


def estimate_crossed(scores: np.ndarray) -> Estimate:
    """The mean of scores (S, E) whose S seeds and E examples are both random draws.

    The mean squares are those of a two-way table without replication; the degrees of freedom are Satterthwaite's. One
    seed has the variance over examples alone. Raises ValueError for fewer than two examples.
    """
    table = np.asarray(scores, dtype=np.float64)
    seeds, examples = table.shape
    if examples < 2:
        raise ValueError(f"an interval over examples needs at least 2, not {examples}")
    mean, rows, columns = table.mean(), table.mean(axis=1), table.mean(axis=0)
    of_example = seeds * columns.var(ddof=1)
    if seeds == 1:
        return Estimate(float(mean), float(of_example / examples), examples - 1, "examples")
    of_seed = examples * rows.var(ddof=1)
    rest = table - rows[:, None] - columns + mean
    of_rest = (rest**2).sum() / ((seeds - 1) * (examples - 1))
    variance = max(of_seed + of_example - of_rest, of_seed, of_example) / table.size
    parts = {seeds - 1: of_seed, examples - 1: of_example, (seeds - 1) * (examples - 1): of_rest}
    spread = sum((square / table.size) ** 2 / df for df, square in parts.items())
    df = variance**2 / spread if spread > 0 else seeds - 1
    return Estimate(float(mean), float(variance), float(df), "seeds and examples")


def jackknife_values(whole: float, without: Values) -> np.ndarray:
    """Pseudo-values (G,) of a metric that is no mean: of all examples, and without each of G groups of examples.

    Their mean estimates the metric, and their spread its variance (Tukey 1958), so they take the place of the scores of
    single examples.
    """
    values = np.asarray(without, dtype=np.float64)
    count = len(values)
    pseudo: np.ndarray = count * whole - (count - 1) * values
    return pseudo


def smallest_difference(estimate: Estimate, num_tests: int = 1) -> float:
    """The true mean that Student's test with this variance detects with power 0.8 at the level 0.05 / num_tests.

    This is the first step of Holm's correction over `num_tests`. The noncentral t distribution is computed as a mean
    over the chi distribution of the sample spread, because scipy's own gives NaN for two pairs.
    """
    level, df = LEVEL / max(1, num_tests), estimate.df
    limit = float(stats.t.ppf(1 - level / 2, df))
    shares = (np.arange(QUANTILES) + 0.5) / QUANTILES
    limits = limit * np.sqrt(stats.chi2.ppf(shares, df) / df)  # for each quantile of the spread

    def missing_power(shift: float) -> float:
        return float((stats.norm.cdf(shift - limits) + stats.norm.cdf(-shift - limits)).mean() - POWER)

    needed = optimize.brentq(missing_power, 0.0, 2 * limit + 10)
    return float(needed * estimate.variance**0.5)


def seeds_needed(num_tests: int, spreads: float) -> int:
    """The fewest paired seeds that detect, with power 0.8 among so many tests, a true difference of so many spreads.

    A spread is the standard deviation of the paired differences over seeds.
    """
    return next(
        count
        for count in range(2, MAX_SEEDS)
        if smallest_difference(Estimate(0.0, 1 / count, count - 1, "seeds"), num_tests) <= spreads
    )


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
    estimate = estimate_over_seeds(differences)
    smallest = None if estimate is None else smallest_difference(estimate)
    return PairedTest(count, mean, smallest, p, verdict)


def is_significant(adjusted_p: float, pairs: int) -> bool:
    """Whether a difference is significant: enough pairs for an exact test, and an adjusted p value below LEVEL."""
    return pairs >= FEWEST_RUNS and adjusted_p < LEVEL


def p_above_chance(right: int, size: int, chance: float) -> float:
    """The probability of at least `right` right answers of `size` at `chance`: the exact binomial test."""
    return float(stats.binom.sf(right - 1, size, chance))
