"""Statistics of a few runs: intervals of a mean, exact paired tests, and the smallest difference that they can detect.

Results are (S,), one per seed; scores of single examples are (S, E).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import optimize, stats

LEVEL = 0.05  # of tests; intervals cover 1 - LEVEL
POWER = 0.8  # of the test for which `smallest_difference` is computed
MIN_CROSSED_SEEDS = 5  # with fewer, their spread may be small by chance, and then small p values come too often
MIN_INTERVAL_RUNS = 3  # runs; for two, Student's interval is 9 standard deviations to either side
MAX_EXACT_PAIRS = 20  # pairs for which all 2**20 signs are tried
MAX_SEEDS = 1000  # that `seeds_needed` considers
QUANTILES = 4000  # over which a distribution is averaged
MAX_GROUPS = 50  # of examples, which a jackknife leaves out one after the other
ROUNDING = 2.0**-22  # of a score, by which two differences of scores of 32 bits may differ that are equal
FLIPS = 100_000  # random signs that are tried for more than MAX_EXACT_PAIRS pairs

Values = Sequence[float] | np.ndarray
Scored = tuple[np.ndarray, np.ndarray]  # ids (E,), and the scores of these examples or of groups of them (G,)


@dataclass(frozen=True)
class Interval:
    """A 95 % interval and the method that gave it."""

    low: float
    high: float
    how: str

    @property
    def half_width(self) -> float:
        """Half of its width, which decides how many digits are shown."""
        return (self.high - self.low) / 2


def student_half_width(std: np.ndarray | float, count: np.ndarray | int) -> np.ndarray:
    """Half of Student's 95 % interval of a mean from the standard deviation (n - 1) of `count` values; NaN for one."""
    half: np.ndarray = stats.t.ppf(1 - LEVEL / 2, np.asarray(count) - 1) * std / np.sqrt(count)
    return half


@dataclass(frozen=True)
class Estimate:
    """A mean, the variance of that mean, and the degrees of freedom of that variance. All tests are Student's."""

    mean: float
    variance: float
    df: float
    over: str  # what was drawn at random: "seeds", "examples", "seeds and examples"
    over_seeds: Estimate | None = None  # of fewer than MIN_CROSSED_SEEDS seeds; each test must hold over them alone too
    num_examples: int = 0  # or groups of them, if these were drawn

    def interval(self, level: float = LEVEL) -> Interval:
        """The interval that covers 1 - level, 95 %."""
        half = float(stats.t.ppf(1 - level / 2, self.df)) * self.variance**0.5
        return Interval(self.mean - half, self.mean + half, f"Student's t over {self.over}")

    def lower_limit(self, level: float = LEVEL) -> float:
        """The one-sided limit that lies below the true mean in 1 - level of all cases, 95 %."""
        return self.mean - float(stats.t.ppf(1 - level, self.df)) * math.sqrt(self.variance)

    def p(self) -> float | None:
        """The two-sided p value of a true mean of 0; None where all values are equal: no spread to test with."""
        return max(
            (float(2 * stats.t.sf(abs(one.mean) / one.variance**0.5, one.df)) for one in self._tested), default=None
        )

    def equivalence_p(self, margin: float) -> float | None:
        """The larger p value of the two one-sided tests of |mean| < margin (Schuirmann 1987); None as `p`.

        Where no example differs in any seed, it is the chance of that if a share `margin` of all examples did.
        """
        if self.variance == self.mean == 0 and self.num_examples:
            return float(max(0.0, 1 - margin) ** self.num_examples)
        found = (float(stats.t.sf((margin - abs(one.mean)) / one.variance**0.5, one.df)) for one in self._tested)
        return max(found, default=None)

    @property
    def _tested(self) -> list[Estimate]:
        """This estimate and that over few seeds alone, where they have a variance."""
        return [one for one in (self, self.over_seeds) if one is not None and one.variance > 0]

    def describe_equal_pairs(self) -> str:
        """What pairs do whose differences have no spread."""
        return "differ by the same" if self.mean else "are equal"

    def detectable(self, num_tests: int) -> float | None:
        """The `smallest_difference` among so many tests; None without a variance, which does not say it."""
        return smallest_difference(self, num_tests) or None


def estimate_over_seeds(values: Values, scale: float = 0.0) -> Estimate | None:
    """The mean of (S,) with the variance over seeds alone; None for fewer than two.

    Values that are equal but for rounding have none. `scale` is the largest of the scores whose differences they are.
    """
    results = np.asarray(values, dtype=np.float64)
    count = len(results)
    if count < 2:
        return None
    rounding = ROUNDING * max(scale, float(np.abs(results).max()))
    mean, variance = float(results.mean()), float(results.var(ddof=1) / count)
    if np.ptp(results) <= rounding:
        mean, variance = 0.0 if abs(mean) <= rounding else mean, 0.0
    return Estimate(mean, variance, count - 1, "seeds")


def estimate_over_splits(
    values: Values, splits: Sequence[object], size_per_train: float, scale: float = 0.0
) -> Estimate | None:
    """The mean of (S,) on these splits (S,), corrected for training sets that overlap (Nadeau and Bengio 2003).

    Seeds on one split share its examples, so a split counts once, with the mean of its values. `size_per_train` is the
    number of scored examples divided by that of training examples. None for fewer than two splits. `scale` as in
    `estimate_over_seeds`.
    """
    by_split: dict[object, list[float]] = {}
    for split, value in zip(splits, values, strict=True):
        by_split.setdefault(split, []).append(float(value))
    found = estimate_over_seeds([float(np.mean(each)) for each in by_split.values()], scale)
    if found is None:
        return None
    variance = found.variance * (1 + len(by_split) * size_per_train)
    return replace(found, mean=float(np.mean(values)), variance=variance, over="splits")


def estimate_crossed(scores: np.ndarray) -> Estimate:
    """The mean of scores (S, E) whose S seeds and E examples are both random draws.

    The mean squares are those of a two-way table without replication; the degrees of freedom are Satterthwaite's. One
    seed has the variance over examples alone. The interval covers its 95 % from three seeds on; in families of tests,
    which ask for small p values, fewer than five seeds are also tested alone. At least two examples.
    """
    table = np.asarray(scores, dtype=np.float64)
    seeds, examples = table.shape
    mean, rows, columns = table.mean(), table.mean(axis=1), table.mean(axis=0)
    of_example = seeds * columns.var(ddof=1)
    if seeds == 1:
        return Estimate(float(mean), float(of_example / examples), examples - 1, "examples", num_examples=examples)
    of_seed = examples * rows.var(ddof=1)
    rest = table - rows[:, None] - columns + mean
    of_rest = (rest**2).sum() / ((seeds - 1) * (examples - 1))
    variance = max(of_seed + of_example - of_rest, of_seed, of_example) / table.size
    parts = ((seeds - 1, of_seed), (examples - 1, of_example), ((seeds - 1) * (examples - 1), of_rest))
    spread = sum((square / table.size) ** 2 / df for df, square in parts)
    df = variance**2 / spread if spread > 0 else 1.0  # without a spread no test uses it
    alone = estimate_over_seeds(rows) if seeds < MIN_CROSSED_SEEDS else None
    return Estimate(float(mean), float(variance), float(df), "seeds and examples", alone, examples)


def estimate_runs(values: Values, scored: Sequence[Scored | None], scale: float = 0.0) -> Estimate | None:
    """The mean of (S,) with its variance over seeds and examples, where all S runs have scores of the same examples.

    Otherwise, and for one example, it is over seeds alone, with `scale` as there; None for fewer than two runs.
    """
    over_seeds = estimate_over_seeds(values, scale)
    known = [one for one in scored if one is not None]
    if over_seeds is None or len(known) < len(scored):
        return over_seeds
    ids = known[0][0]
    if len(ids) < 2 or any(not np.array_equal(ids, others) for others, _ in known):
        return over_seeds
    crossed = estimate_crossed(np.stack([scores for _, scores in known]))
    alone = over_seeds if crossed.over_seeds else None
    return replace(crossed, mean=over_seeds.mean, over_seeds=alone)  # the jackknife's own mean is without its bias


def estimate_pairs(
    differences: Values, ours: Sequence[Scored | None], theirs: Sequence[Scored | None], scale: float
) -> Estimate | None:
    """The mean of paired differences (S,), with its variance over seeds and examples where all runs have both.

    Runs without scores of examples, or with scores of other examples, have a variance over seeds. `scale` is the
    largest of the scores that differ, whose rounding is no variance.
    """
    pairs = [
        (a[0], a[1] - b[1]) if a is not None and b is not None and np.array_equal(a[0], b[0]) else None
        for a, b in zip(ours, theirs, strict=True)
    ]
    return estimate_runs(differences, pairs, scale)


def jackknife_rows(count: int) -> np.ndarray:
    """Which of `count` examples are kept (G, count) when each of at most MAX_GROUPS groups is left out, in turn."""
    num_groups = min(MAX_GROUPS, count)
    groups = np.random.default_rng(0).permutation(count) % num_groups
    kept: np.ndarray = groups != np.arange(num_groups)[:, None]
    return kept


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

    The level is that of the first step of Holm's correction over `num_tests`. The noncentral t distribution is computed
    as a mean over the chi distribution of the sample spread, because scipy's own gives NaN for two pairs.
    """
    if estimate.over_seeds is not None:
        parts = replace(estimate, over_seeds=None), estimate.over_seeds
        return max(smallest_difference(part, num_tests) for part in parts)
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


def sign_flip_test(differences: Values) -> float:
    """Two-sided p value of Fisher's permutation test of the mean of paired differences (S,) under random signs.

    Exact with all 2**S signs for up to 20 pairs; more pairs use 100,000 random signs. Raises ValueError without pairs.
    """
    values = np.asarray(differences, dtype=np.float64)
    count = len(values)
    if not count:
        raise ValueError("a paired test needs at least one pair")
    if count > MAX_EXACT_PAIRS:
        signs = np.random.default_rng(0).choice([-1.0, 1.0], size=(FLIPS, count))
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


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Holm's adjusted p values (1979) in the given order; those below 0.05 have a family-wise error below 5 %.

    A comparison without a p (None) counts, and has none.
    """
    adjusted: list[float | None] = [None] * len(p_values)
    largest = 0.0
    known = sorted((p, place) for place, p in enumerate(p_values) if p is not None)
    for rank, (p, place) in enumerate(known):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p))
        adjusted[place] = largest
    return adjusted


def p_above_chance(right: int, size: int, chance: float) -> float:
    """The probability of at least `right` right answers of `size` at `chance`: the exact binomial test."""
    return float(stats.binom.sf(right - 1, size, chance))
