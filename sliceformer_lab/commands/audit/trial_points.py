"""The trials that every row gets: one shared list of points, its growth at an edge, and how a row's best is chosen."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from scipy.stats import qmc

from sliceformer_lab.runs.optim_words import number_word, rate_words

LOWEST, HIGHEST = 1e-4, 1e-2  # learning rates of random trials
DECAY = (0.0, 0.01, 0.05, 0.1)
DROPOUT = (0.0, 0.1, 0.2)
WARMUP = (0.0, 0.05, 0.1)  # of the steps
EDGE = 1.5  # a random point's rate within this factor of an end of the range is at the edge
BEYOND = (3.0, 10.0)  # factors of the last rate of a grid, for two more points
NEW_DRAWS, NEW_RANGE = 3, 5.0  # random points in a range that is extended by this factor
MOST_GROWTHS = 2

Side = Literal["low", "high"]


@dataclass(frozen=True)
class Point:
    """The values of one trial, the same for every row."""

    rate: float
    others: Mapping[str, float] = field(default_factory=dict)  # weight decay, dropout and warm-up of random trials

    def words(self, optim: Mapping[str, Any]) -> list[str]:
        """The overrides that give a run these values; `optim` is the node of the row's own recipe."""
        found = rate_words(optim, self.rate / optim["lr"])
        if "optim.warmup_share" in self.others:
            found.append("optim.warmup_steps=0")
        return [*found, *(number_word(key, value) for key, value in self.others.items())]


@dataclass(frozen=True)
class Points:
    """The shared list of points, and the range of learning rates that it covers."""

    points: tuple[Point, ...]
    low: float
    high: float
    is_random: bool

    def side_of(self, point: Point) -> Side | None:
        """The side of the range at whose edge a point is; None for one inside, and for a grid of one rate."""
        if self.low == self.high:
            return None
        near = EDGE if self.is_random else 1 + 1e-9
        if point.rate <= self.low * near:
            return "low"
        return "high" if point.rate >= self.high / near else None

    def grown(self, sides: Sequence[Side]) -> Points:
        """The list with further points beyond some sides: two of a grid, three random ones."""
        points, low, high = list(self.points), self.low, self.high
        for side in sides:
            end = self.low if side == "low" else self.high
            if self.is_random:
                ends = (end / NEW_RANGE, end) if side == "low" else (end, end * NEW_RANGE)
                points += _drawn(NEW_DRAWS, *ends, seed=len(points))
            else:
                points += [Point(float(f"{end / f if side == 'low' else end * f:.6g}")) for f in BEYOND]
            reach = NEW_RANGE if self.is_random else max(BEYOND)
            low, high = (low / reach, high) if side == "low" else (low, high * reach)
        return Points(tuple(points), low, high, self.is_random)


def first_points(rates: Sequence[float], trials: int) -> Points:
    """The grid of learning rates, or `trials` random points where that is not 0."""
    if trials:
        return Points(tuple(_drawn(trials, LOWEST, HIGHEST, seed=0)), LOWEST, HIGHEST, is_random=True)
    return Points(tuple(map(Point, rates)), min(rates), max(rates), is_random=False)


def _drawn(count: int, low: float, high: float, seed: int) -> list[Point]:
    """Points of a scrambled Sobol sequence; learning rates are uniform in log scale."""
    sequence = qmc.Sobol(4, scramble=True, seed=seed).random_base2(math.ceil(math.log2(max(2, count))))[:count]
    return [
        Point(
            float(f"{low * (high / low) ** rate:.6g}"),
            {
                "optim.weight_decay": _chosen(DECAY, decay),
                "encoder.dropout": _chosen(DROPOUT, dropout),
                "optim.warmup_share": _chosen(WARMUP, warmup),
            },
        )
        for rate, decay, dropout, warmup in sequence.tolist()
    ]


def _chosen(values: Sequence[float], share: float) -> float:
    return values[min(len(values) - 1, int(share * len(values)))]


@dataclass(frozen=True)
class Trial:
    """A point with its validation scores, one for each tuning seed; a run that failed or diverged has the floor."""

    point: Point
    scores: tuple[float, ...]
    lost: int = 0  # runs that failed or diverged

    @property
    def mean(self) -> float:
        """The mean over the tuning seeds."""
        return float(np.mean(self.scores))

    @property
    def standard_error(self) -> float:
        """Of the mean; 0 for one seed."""
        return float(np.std(self.scores, ddof=1) / len(self.scores) ** 0.5) if len(self.scores) > 1 else 0.0


def top_trial(trials: Sequence[Trial], sign: float) -> Trial | None:
    """The trial with the best mean, of equal ones that of the lower rate; None if every run of every trial was lost."""
    usable = [trial for trial in trials if trial.lost < len(trial.scores)]
    return max(usable, key=lambda trial: (sign * trial.mean, -trial.point.rate), default=None)


def chosen_trial(trials: Sequence[Trial], sign: float) -> Trial | None:
    """The trial with the lowest learning rate among those within one standard error of the best mean."""
    if (top := top_trial(trials, sign)) is None:
        return None
    near = [one for one in trials if sign * (top.mean - one.mean) <= top.standard_error and one.lost < len(one.scores)]
    return min(near, key=lambda trial: trial.point.rate)


def sides_to_grow(points: Points, rows: Sequence[Sequence[Trial]], sign: float) -> list[Side]:
    """The sides at which the best trial of some row is, low first."""
    tops = [top_trial(trials, sign) for trials in rows]
    found = {points.side_of(top.point) for top in tops if top is not None}
    return [side for side in ("low", "high") if side in found]
