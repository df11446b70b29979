"""Solves one width of a model for a budget of parameters or multiply-adds, before any data is read."""

from __future__ import annotations

import logging
import math
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Any

import torch

from sliceformer_lab.config.compose import load_option, option_names
from sliceformer_lab.config.schema import ConfigError, nearest
from sliceformer_lab.training.build import build_data, build_task
from sliceformer_lab.training.scoring import cost_per_sample, num_parameters

log = logging.getLogger(__name__)

TOLERANCE = 0.05  # a model further away is refused
CLOSE = 0.001  # a model as near as this keeps its width: budgets are rounded
WIDEST = 65_536  # no width is tried beyond this many steps
NAMES = {"params": "parameters", "flops": "multiply-adds"}
MOST = 10**15
FACTORS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "B": 10**9}

Config = Mapping[str, Any]


@dataclass(frozen=True)
class Width:
    """An option that a budget may change, in whole steps."""

    key: str  # such as encoder.dim
    step: Fraction
    start: int  # steps, as configured

    def at(self, steps: int) -> int | float:
        """The option's value."""
        value = steps * self.step
        return value.numerator if value.denominator == 1 else round(float(value), 6)

    def configured(self, config: Config) -> int | float:
        """The option's value before, which need not be a whole number of steps."""
        node, _, option = self.key.partition(".")
        value: int | float = config[node][option]
        return value

    def changed(self, config: Config, steps: int) -> dict[str, Any]:
        """The configuration with this value."""
        node, _, option = self.key.partition(".")
        return {**config, node: {**config[node], option: self.at(steps)}}


@dataclass(frozen=True)
class Model:
    """What a width gives."""

    width: Width
    steps: int
    cost: int


def within_budget(config: Config) -> dict[str, Any]:
    """The configuration with one width changed so that the model costs what `budget` says.

    `params` counts what is trained, `flops` the multiply-adds of one sample's forward pass, of which a sort has none.
    Inner widths go first, because the residual width, the heads and the positions then stay as they are; of
    permutation attentions it is that of the values, which is how CSP-wide comes about.
    Raises ConfigError for a budget that says nothing, or that no width meets within 5 %.
    """
    budget = str(config["budget"])
    unit, asked = _asked(budget)
    own = _cost(config, unit)
    target = asked if isinstance(asked, int) else _cost_with(asked, config, unit)
    if abs(own - target) <= CLOSE * target:
        log.info(f"budget={budget}: {own:,} {NAMES[unit]} as configured, {100 * (own / target - 1):+.1f} %")
        return dict(config)
    reached: list[Model] = []
    failure: ConfigError | None = None
    for width in _widths(config):
        try:
            found = _nearest(width, config, unit, target)
        except ConfigError as error:  # the model cannot have this width, but perhaps another
            failure = error
            continue
        reached += found
        best = min(found, key=lambda model: abs(model.cost - target), default=None)
        if best is not None and abs(best.cost - target) <= TOLERANCE * target:
            change = f"{width.key} {width.configured(config)} -> {width.at(best.steps)}"
            log.info(f"budget={budget}: {change}: {best.cost:,} {NAMES[unit]}, {100 * (best.cost / target - 1):+.1f} %")
            return width.changed(config, best.steps)
    if reached:
        reached.sort(key=lambda model: abs(model.cost - target))
        told = [f"{model.cost:,} ({model.width.key}={model.width.at(model.steps)})" for model in reached[:2]]
        raise ConfigError(
            f"budget={budget}: no width comes within {100 * TOLERANCE:.0f} % of {target:,} {NAMES[unit]}; "
            f"the nearest this model can have: {' and '.join(told)}"
        )
    reason = failure or f"{config.get('budget_by')} changes nothing in this model"
    raise ConfigError(f"budget={budget}: {reason}")


def _asked(budget: str) -> tuple[str, int | str]:
    """Unit, and number or name of an attention."""
    unit, _, amount = budget.partition(":")
    if unit not in NAMES or not amount:
        raise ConfigError(f"budget={budget}: say params: or flops: and a number or an attention, as in params:6.38M")
    if number := re.fullmatch(r"(-?\d*\.?\d+(?:[eE]\+?\d+)?)([KMGB]?)", amount):
        target = float(number[1]) * FACTORS[number[2]]
        if not 1 <= target <= MOST:
            raise ConfigError(f"budget={budget}: should be between 1 and {MOST:.0e}")
        return unit, round(target)
    names = option_names("attention")
    if amount not in names:
        hint = nearest(amount, names) if amount[0].isalpha() else ""
        raise ConfigError(f"budget={budget}: {amount} is neither a number such as 6.38M nor an attention{hint}")
    return unit, amount


def _cost_with(attention: str, config: Config, unit: str) -> int:
    """What the model costs with another attention in its default form."""
    try:
        return _cost({**config, "attention": load_option("attention", attention)}, unit)
    except ConfigError as error:
        raise ConfigError(f"budget={config['budget']}: {error}") from error


def _widths(config: Config) -> list[Width]:
    """The widths that may be changed, first the one to try first."""
    encoder, inner_mult = config["encoder"], config["attention"].get("inner_mult")
    heads, dim, head_dim = encoder["num_heads"], encoder["dim"], encoder.get("head_dim")
    found = []
    if inner_mult is not None:
        channel = Fraction(1, head_dim or dim // heads)  # one more in every head
        found.append(Width("attention.inner_mult", channel, round(Fraction(inner_mult) / channel)))
    found.append(Width("encoder.mlp_dim", Fraction(1), encoder["mlp_dim"]))
    waves = {"sincos": 2, "sincos2d": 4, "rope": 4 * heads}.get(encoder["position"], 1)  # sines beside cosines
    step = math.lcm(waves, heads) if head_dim is None else waves if encoder["position"] != "rope" else 1
    found.append(Width("encoder.dim", Fraction(step), max(1, dim // step)))
    wanted = config.get("budget_by")
    if wanted is None:
        return found
    if wanted not in [width.key for width in found]:
        raise ConfigError(
            f"budget_by={wanted}: this attention has no such width; choose {' or '.join(width.key for width in found)}"
        )
    return [width for width in found if width.key == wanted]


def _nearest(width: Width, config: Config, unit: str, target: int) -> list[Model]:
    """The models just below and just above the target; one where it lies outside, none where the width has no say."""

    @cache
    def cost(steps: int) -> int:
        return _cost(width.changed(config, steps), unit)

    if cost(2 * width.start) == cost(width.start):
        return []
    return [Model(width, steps, cost(steps)) for steps in dict.fromkeys(_bracket(cost, target, width.start))]


def _bracket(cost: Callable[[int], int], target: int, start: int) -> tuple[int, int]:
    """The numbers of steps next to each other between which the target lies; the same twice where it lies outside.

    Interpolates, since a cost is linear or quadratic in a width: six or so models are built where halving builds 20.
    """
    low, high = 1, start
    while cost(high) < target:
        if 2 * high > WIDEST:
            return high, high
        low, high = high, 2 * high
    if cost(low) > target:
        return low, low
    while high - low > 1 and cost(low) < target:
        share = (target - cost(low)) / (cost(high) - cost(low))
        guess = min(max(low + round(share * (high - low)), low + 1), high - 1)
        low, high = (guess, high) if cost(guess) <= target else (low, guess)
    return low, high


def _cost(config: Config, unit: str) -> int:
    """What the model of a configuration costs. Raises ConfigError if it cannot be built.

    Nothing is allocated or computed, except for models that look at values on their way, as at the edges of a graph.
    """
    data = build_data(config).spec
    with _quietly():
        with torch.device("meta"):
            task = build_task(config, data).to("meta")
        if unit == "params":
            return num_parameters(task)
        try:
            return cost_per_sample(task)["multiply_adds"]
        except RuntimeError:
            return cost_per_sample(build_task(config, data))["multiply_adds"]


@contextmanager
def _quietly() -> Iterator[None]:
    """What a model says when it is built, it will say again when the run builds it."""
    before = logging.root.manager.disable
    logging.disable(logging.INFO)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
