"""The space of a search: which options, in which range around the recipe's own values, and how it grows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from sliceformer_lab.commands.tune.tune_options import Search
from sliceformer_lab.runs.optim_words import number_word, rate_words

FACTOR = 10.0  # a range reaches this far to each side of the recipe's own value, and grows by as much
EDGE = 0.1  # a best value within this outermost share of a range, in log scale, is at its edge
MOST_GROWTHS = 2
DECAY = {"adamw": 1e-2}  # the middle of the range of weight decay where the recipe has none
OTHER_DECAY = 1e-4
DROPOUT = (0.0, 0.1, 0.2, 0.3)
WARMUP = (0.0, 0.02, 0.05, 0.1)  # of all steps

Side = Literal["low", "high"]
Point = Mapping[str, float]  # option -> a factor of the recipe's own value, or one of the choices
Edge = tuple[str, Side]  # option, side of its range


@dataclass(frozen=True)
class Range:
    """An option that is sampled log-uniformly: a factor of the recipe's own value."""

    key: str
    low: float = 1 / FACTOR
    high: float = FACTOR

    def edge(self, factor: float) -> Side | None:
        """The side at whose edge a factor is; None for one in the middle."""
        place = math.log(factor / self.low) / math.log(self.high / self.low)
        return "low" if place <= EDGE else "high" if place >= 1 - EDGE else None

    def beyond(self, side: Side) -> Range:
        """The new part of the range when it grows at a side."""
        if side == "low":
            return replace(self, low=self.low / FACTOR, high=self.low)
        return replace(self, low=self.high, high=self.high * FACTOR)

    def grown(self, side: Side) -> Range:
        """The range with its new part."""
        new = self.beyond(side)
        return replace(self, low=min(self.low, new.low), high=max(self.high, new.high))


@dataclass(frozen=True)
class Choices:
    """An option that has one of a few values."""

    key: str
    values: tuple[float, ...]


Space = tuple[Range | Choices, ...]


@dataclass(frozen=True)
class Batch:
    """A number of trials that are drawn from one space."""

    space: Space
    count: int


def first_space(search: Search) -> Space:
    """The space that a search starts with, the same for every attention."""
    lr, decay = Range("optim.lr"), Range("optim.weight_decay")
    more = (Choices("optim.warmup_share", WARMUP), Choices("encoder.dropout", DROPOUT))
    return {"lr": (lr,), "lr_wd": (lr, decay), "recipe": (lr, decay, *more)}[search]


def edges(space: Space, points: Sequence[Point]) -> list[Edge]:
    """The edges of the space at which one of the points is, in the order of the space."""
    ranges = [part for part in space if isinstance(part, Range)]
    found = [(part.key, part.edge(point[part.key])) for part in ranges for point in points if part.key in point]
    return list(dict.fromkeys((key, side) for key, side in found if side is not None))


def grow(space: Space, found: Sequence[Edge], count: int) -> tuple[Space, list[Batch]]:
    """The space that is larger at some edges, and `count` trials in each of its new parts."""
    batches = []
    for key, side in found:
        new = tuple(p.beyond(side) if isinstance(p, Range) and p.key == key else p for p in space)
        batches.append(Batch(new, count))
        space = tuple(p.grown(side) if isinstance(p, Range) and p.key == key else p for p in space)
    return space, batches


def parts(space: Space, count: int, seed: Sequence[int]) -> list[Space]:
    """A space for each of `count` random trials: every range is cut into as many parts, equal in log scale.

    The parts of a range are dealt out at random, so few trials cover all of it.
    """
    generator = np.random.default_rng(seed)
    columns: list[list[Range | Choices]] = []
    for part in space:
        if isinstance(part, Range):
            ends = np.geomspace(part.low, part.high, count + 1).tolist()
            columns.append([replace(part, low=ends[i], high=ends[i + 1]) for i in generator.permutation(count)])
        else:
            columns.append([part] * count)
    return list(zip(*columns, strict=True))


def own_values(config: Mapping[str, Any]) -> dict[str, float]:
    """The recipe's own value of each option that some search changes, as far as it has one."""
    optim = config["optim"]
    warmup = 0.0 if optim["warmup_steps"] == 0 and optim["warmup_share"] is None else optim["warmup_share"]
    values = {
        "optim.lr": optim["lr"],
        "optim.weight_decay": optim["weight_decay"],
        "optim.warmup_share": warmup,  # None: a number of steps
        "encoder.dropout": config["encoder"]["dropout"],
    }
    return {key: float(value) for key, value in values.items() if value is not None}


def own_point(space: Space, own: Mapping[str, float]) -> Point:
    """The recipe's own values as a point; an option whose own value is outside the space is left out."""
    point = {}
    for part in space:
        value = own.get(part.key)
        if isinstance(part, Range) and value:
            point[part.key] = 1.0
        elif isinstance(part, Choices) and value in part.values:
            point[part.key] = value
    return point


def words_at(point: Point, config: Mapping[str, Any]) -> list[str]:
    """The overrides that give a run the values of a point. The schedule keeps its shape at another learning rate."""
    optim, words = config["optim"], []
    for key, value in point.items():
        match key:
            case "optim.lr":
                words += rate_words(optim, value)
            case "optim.weight_decay":
                words.append(
                    number_word(key, value * (optim["weight_decay"] or DECAY.get(optim["optimizer"], OTHER_DECAY)))
                )
            case "optim.warmup_share":
                words += ["optim.warmup_steps=0", number_word(key, value)]
            case _:
                words.append(number_word(key, value))
    return words
