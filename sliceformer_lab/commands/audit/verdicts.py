"""The verdict of each declared comparison, from paired test scores: better, worse, equivalent or undecided."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from scipy import stats

from sliceformer_lab.measures.statistics import (
    LEVEL,
    MOST_SIMULATED,
    Interval,
    example_interval,
    holm,
    is_significant,
    seed_interval,
    sign_flip_test,
    smallest_by_signs,
    smallest_difference,
)

RESAMPLES = 10_000

Verdict = Literal["better", "worse", "equivalent", "undecided"]


@dataclass(frozen=True)
class Pairs:
    """What is known of one comparison. Positive differences are in favour of the subject."""

    against: str
    differences: Mapping[int, float]  # by seed
    margin: float | None  # None: no default for this metric
    examples: np.ndarray | None = None  # differences of single test examples (S, E) of fixed models; None: unknown
    subject_at_edge: bool = False  # its best learning rate is at the edge of the trials
    other_at_edge: bool = False
    obstacle: str | None = None  # why there can be no verdict


@dataclass(frozen=True)
class Outcome:
    """The verdict of one comparison and its numbers; None where there are none."""

    against: str
    verdict: Verdict | None  # None: no verdict, for the reason
    reason: str | None
    differences: Mapping[int, float]
    mean: float | None = None
    over_seeds: Interval | None = None
    over_examples: Interval | None = None
    interval: Interval | None = None  # the wider of the two
    narrow: Interval | None = None  # the same that covers 90 %, for equivalence
    p: float | None = None  # of the exact sign-flip test
    holm_p: float | None = None  # adjusted over the declared family
    p_equivalent: float | None = None  # the larger of two one-sided Student tests over seeds
    smallest: float | None = None  # the difference that could have been found; None: no difference could
    margin: float | None = None
    withheld: bool = False  # a verdict that a row at the edge of its trials does not get


def outcomes(family: Sequence[Pairs]) -> list[Outcome]:
    """The outcomes of a declared family. Holm counts every declared comparison, also one without a test.

    A comparison is `better` or `worse` if its adjusted p is below 5 % and the wider interval excludes 0, else
    `equivalent` if the wider 90 % interval lies within the margin, else `undecided`.
    """
    testable = [pairs for pairs in family if pairs.obstacle is None and pairs.differences]
    raw = {pairs.against: sign_flip_test(list(pairs.differences.values())) for pairs in testable}
    adjusted = holm([raw.get(pairs.against, 1.0) for pairs in family])
    return [
        _outcome(pairs, raw[pairs.against], p, len(family)) if pairs.against in raw else _without(pairs)
        for pairs, p in zip(family, adjusted, strict=True)
    ]


def pairs_needed(comparisons: int) -> int:
    """The fewest pairs with which the exact test can be significant among so many comparisons."""
    return math.floor(1 + math.log2(max(1, comparisons) / LEVEL)) + 1


def equivalence_p(differences: Sequence[float], margin: float) -> float | None:
    """The larger p value of the two one-sided tests of |mean| < margin (Schuirmann 1987); None for one difference."""
    values = np.asarray(differences, dtype=np.float64)
    if len(values) < 2:
        return None
    mean, error = float(values.mean()), float(values.std(ddof=1) / len(values) ** 0.5)
    if error == 0:
        return 0.0 if abs(mean) < margin else 1.0
    return float(max(stats.t.sf((s * mean + margin) / error, len(values) - 1) for s in (1, -1)))


def _outcome(pairs: Pairs, p: float, holm_p: float, comparisons: int) -> Outcome:
    values = list(pairs.differences.values())
    mean = float(np.mean(values))
    over_seeds, narrow = _seeds(values, LEVEL), _wider(_seeds(values, 2 * LEVEL), _examples(pairs, 2 * LEVEL))
    over_examples = _examples(pairs, LEVEL)
    interval = _wider(over_seeds, over_examples)
    found = Outcome(
        pairs.against,
        "undecided",
        None,
        pairs.differences,
        mean,
        over_seeds,
        over_examples,
        interval,
        narrow,
        p,
        holm_p,
        None if pairs.margin is None else equivalence_p(values, pairs.margin),
        _smallest(values, comparisons),
        pairs.margin,
    )
    if interval is not None and is_significant(holm_p, len(values)) and not interval.low <= 0 <= interval.high:
        loser_at_edge = pairs.other_at_edge if mean > 0 else pairs.subject_at_edge
        if loser_at_edge:
            return replace(found, withheld=True)
        return replace(found, verdict="better" if mean > 0 else "worse")
    within = (
        narrow is not None and pairs.margin is not None and -pairs.margin < narrow.low and narrow.high < pairs.margin
    )
    return replace(found, verdict="equivalent") if within else found


def _smallest(values: Sequence[float], comparisons: int) -> float | None:
    if len(values) > MOST_SIMULATED:
        return smallest_difference(values)
    return smallest_by_signs(values, comparisons)


def _seeds(values: Sequence[float], level: float) -> Interval | None:
    return seed_interval(values, RESAMPLES, seed=0, level=level)


def _examples(pairs: Pairs, level: float) -> Interval | None:
    return None if pairs.examples is None else example_interval(pairs.examples, RESAMPLES, seed=0, level=level)


def _wider(one: Interval | None, other: Interval | None) -> Interval | None:
    known = [interval for interval in (one, other) if interval is not None]
    return max(known, key=lambda interval: interval.high - interval.low, default=None)


def _without(pairs: Pairs) -> Outcome:
    reason = pairs.obstacle or "no seed has a score of both"
    return Outcome(pairs.against, None, reason, pairs.differences, margin=pairs.margin)
