"""The trials that every row gets: one shared list of points, how it grows, and how a row's best is chosen."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from scipy.stats import qmc

from sliceformer_lab.commands.compare.compare_options import Search
from sliceformer_lab.measures.statistics import Estimate, estimate_over_seeds

MAX_RATE_FACTOR = 10.0  # random rates lie within this factor of the recipe's own
GRID: Mapping[str, tuple[float, ...]] = {  # values of the other options of random points
    "optim.weight_decay": (0.0, 0.01, 0.05, 0.1),
    "encoder.dropout": (0.0, 0.1, 0.2, 0.3),
    "optim.warmup_share": (0.0, 0.02, 0.05, 0.1),
}
OTHER_OPTIONS: Mapping[Search, tuple[str, ...]] = {"lr": (), "lr_wd": ("optim.weight_decay",), "recipe": tuple(GRID)}
EXTENSION_FACTORS = (3.0, 10.0)  # factors of the last rate of a grid, for two more points
NUM_NEW_DRAWS, RANGE_FACTOR = 3, 5.0  # random points in a range that is extended by this factor
MAX_GROWTHS = 2
SCORE_DIGITS = 6  # in which scores are compared

Side = Literal["low", "high"]


@dataclass(frozen=True)
class Point:
    """The values of one trial, the same for every row."""

    rate: float
    others: Mapping[str, float] = field(default_factory=dict)  # weight decay, dropout and warm-up of random trials

    def words(self, optim: Mapping[str, Any]) -> list[str]:
        """The overrides that give a run these values; `optim` is the node of the row's own recipe.

        The schedule of the learning rate keeps its shape.
        """
        factor = self.rate / optim["lr"]
        rates = {f"optim.{name}": optim[name] * factor for name in ("lr", "warmup_lr", "min_lr") if optim[name]}
        warmup = ["optim.warmup_steps=0"] if "optim.warmup_share" in self.others else []
        return [*_override_words(rates), *warmup, *_override_words(self.others)]


def _override_words(values: Mapping[str, float]) -> list[str]:
    """Overrides of options by numbers of six digits."""
    return [f"{key}={float(f'{value:.6g}')}" for key, value in values.items()]


@dataclass(frozen=True)
class Points:
    """The shared list of points."""

    points: tuple[Point, ...]
    random: tuple[str, ...] | None  # options besides the rate that random points have; None: a grid of rates
    extensions: int = 0  # how often it grew

    @property
    def low(self) -> float:
        """The lowest learning rate."""
        return min(point.rate for point in self.points)

    @property
    def high(self) -> float:
        """The highest learning rate."""
        return max(point.rate for point in self.points)

    def side_of(self, point: Point) -> Side | None:
        """The side at which a point is the last one; None for one inside, and for a list of one rate."""
        if self.low == self.high:
            return None
        return "low" if point.rate == self.low else "high" if point.rate == self.high else None

    def extended_beyond(self, sides: Sequence[Side]) -> Points:
        """The list with further points beyond some sides: two of a grid, three random ones."""
        points = list(self.points)
        for side in sides:
            end = self.low if side == "low" else self.high
            if self.random is not None:
                ends = (end / RANGE_FACTOR, end) if side == "low" else (end, end * RANGE_FACTOR)
                points += _draw_points(NUM_NEW_DRAWS, *ends, self.random, seed=len(points))
            else:
                points += [Point(float(f"{end / f if side == 'low' else end * f:.6g}")) for f in EXTENSION_FACTORS]
        return Points(tuple(points), self.random, self.extensions + 1)


def first_points(rates: Sequence[float], own: Sequence[float], trials: int, search: Search) -> Points:
    """The grid of learning rates, or `trials` random points where that is not 0; the rows' own rates are among them."""
    own_points = [Point(rate) for rate in sorted(set(own))]
    if not trials:
        return Points((*map(Point, rates), *(point for point in own_points if point.rate not in rates)), None)
    low, high, others = min(own) / MAX_RATE_FACTOR, max(own) * MAX_RATE_FACTOR, OTHER_OPTIONS[search]
    drawn = _draw_points(max(1, trials - len(own_points)), low, high, others, seed=0)
    return Points((*own_points, *drawn), others)


def _draw_points(count: int, low: float, high: float, others: Sequence[str], seed: int) -> list[Point]:
    """Points of a scrambled Sobol sequence; learning rates are uniform in log scale."""
    size = math.ceil(math.log2(max(2, count)))
    sequence = qmc.Sobol(1 + len(others), scramble=True, seed=seed).random_base2(size)[:count]
    return [
        Point(
            float(f"{low * (high / low) ** rate:.6g}"),
            {key: GRID[key][int(share * len(GRID[key]))] for key, share in zip(others, shares, strict=True)},
        )
        for rate, *shares in sequence.tolist()
    ]


@dataclass(frozen=True)
class Trial:
    """A point with its validation scores, one for each seed that it was tried with; a diverged run has the floor."""

    point: Point
    scores: tuple[float, ...]
    lost: int = 0  # runs that diverged

    @property
    def mean(self) -> float:
        """The mean over the seeds."""
        return float(np.mean(self.scores))

    @property
    def usable(self) -> bool:
        """Whether one of its runs finished."""
        return self.lost < len(self.scores)


def to_digits(score: float) -> float:
    """A score in six digits, so that the rounding of float32, in which it was computed, does not decide a tie."""
    return float(f"{score:.{SCORE_DIGITS}g}")


def chosen_trial(trials: Sequence[Trial], sign: float, own_rate: float) -> Trial | None:
    """The trial with the best mean among those with the most seeds; a tie goes to the recipe's own rate.

    None if every run of every trial diverged.
    """
    usable = [trial for trial in trials if trial.usable]
    most = max((len(trial.scores) for trial in usable), default=0)
    decided = [trial for trial in usable if len(trial.scores) == most]
    return max(
        decided,
        key=lambda one: (to_digits(sign * one.mean), one.point == Point(own_rate), -one.point.rate),
        default=None,
    )


def contested_points(trials: Sequence[Trial], sign: float, own_rate: float) -> list[Point]:
    """The points between which another seed decides: the best of each seed, and of their mean; [] if all agree.

    Only seeds that all trials have count, so the answer stays the same once some have the further seed.
    """
    fewest = min((len(trial.scores) for trial in trials if trial.usable), default=0)
    usable = [replace(trial, scores=trial.scores[:fewest], lost=0) for trial in trials if trial.usable]
    best = chosen_trial(usable, sign, own_rate)
    if best is None:
        return []
    found = [best.point]
    for seed in range(len(best.scores)):
        values = [to_digits(sign * trial.scores[seed]) for trial in usable]
        if to_digits(sign * best.scores[seed]) < max(values):
            found.append(usable[values.index(max(values))].point)
    distinct = [point for place, point in enumerate(found) if point not in found[:place]]
    return distinct if len(distinct) > 1 else []


def lead_of(chosen: Trial, trials: Sequence[Trial], sign: float) -> Estimate | None:
    """The lead of the chosen trial over the next best one, on the seeds that both have; None if there is none."""
    others = [one for one in trials if one.point != chosen.point and one.usable]
    rival = max(others, key=lambda one: (len(one.scores), sign * one.mean), default=None)
    if rival is None:
        return None
    return estimate_over_seeds([sign * (a - b) for a, b in zip(chosen.scores, rival.scores, strict=False)])


def sides_to_grow(points: Points, chosen: Sequence[Trial | None]) -> list[Side]:
    """The sides at which the best trial of some row is, low first."""
    found = {points.side_of(one.point) for one in chosen if one is not None}
    return [side for side in ("low", "high") if side in found]
