"""Changes one width of a model so that it meets a budget of parameters or multiply-adds."""

from __future__ import annotations

import logging
import math
import re
import warnings
from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

import torch

from sliceformer_lab.config.checked import RunPlan
from sliceformer_lab.config.compose import load_option, option_names
from sliceformer_lab.config.schema import ConfigError, nearest
from sliceformer_lab.data.spec import DataSpec
from sliceformer_lab.encoder.encoder_options import EncoderOptions
from sliceformer_lab.training.build import build_task
from sliceformer_lab.training.results.scoring import cost_per_sample, num_parameters

log = logging.getLogger(__name__)

MAX_COST_ERROR = 0.05  # a model is refused if its cost is further away
KEPT_WIDTH_ERROR = 0.001  # a model this near keeps its width, because budgets are rounded
MAX_WIDTH_STEPS = 65_536  # the most steps of a width that are tried
NAMES = {"params": "parameters", "flops": "multiply-adds"}
MAX_BUDGET = 10**15
FACTORS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "B": 10**9}


@dataclass(frozen=True)
class Width:
    """An option that a budget may change, in whole steps."""

    key: str  # such as encoder.dim
    step: Fraction
    start: int  # the configured width in steps, rounded

    def at(self, steps: int) -> int | float:
        """The option's value for a number of steps."""
        value = steps * self.step
        return value.numerator if value.denominator == 1 else round(float(value), 6)

    def changed(self, plan: RunPlan, steps: int) -> RunPlan:
        """The plan with that value."""
        return plan.with_options({self.key: self.at(steps)})


@dataclass(frozen=True)
class Model:
    """The cost of a model with a certain width."""

    width: Width
    steps: int
    cost: int

    def __str__(self) -> str:
        return f"{self.cost:,} ({self.width.key}={self.width.at(self.steps)})"


def within_budget(plan: RunPlan, data: DataSpec) -> RunPlan:
    """The plan with one width changed so that the model's cost meets `budget`.

    `params` counts trainable parameters; `flops` counts the multiply-adds of one sample's forward pass, and a sort has
    none. The widths inside attention and MLP are tried first, because they leave the residual width, the heads and the
    positions as they are. Raises ConfigError for a budget that cannot be read, or that no width meets within 5 %.
    """
    budget, named = str(plan.budget), plan.names.attention
    unit, amount = parse_budget(budget)
    own = model_cost(plan, data, unit)
    target = amount if isinstance(amount, int) else _cost_with(amount, plan, data, unit)
    if abs(own - target) <= KEPT_WIDTH_ERROR * target:
        log.info(f"budget={budget}: {own:,} {NAMES[unit]} of {named} as configured, {100 * (own / target - 1):+.1f} %")
        return plan
    reached: list[Model] = []
    failure: ConfigError | None = None
    for width in _list_widths(plan):
        try:
            found = _find_nearest(width, plan, data, unit, target)
        except ConfigError as error:  # the model cannot have this width, but perhaps another
            failure = error
            continue
        reached = sorted([*reached, *found], key=lambda model: abs(model.cost - target))
        if found and abs(reached[0].cost - target) <= MAX_COST_ERROR * target:
            best = reached[0]
            node, _, option = width.key.partition(".")
            log.info(
                f"budget={budget}: {width.key} {plan.plain[node][option]} -> {width.at(best.steps)}: "
                f"{best.cost:,} {NAMES[unit]} of {named}, {100 * (best.cost / target - 1):+.1f} %"
            )
            return width.changed(plan, best.steps)
    if reached:
        raise ConfigError(
            f"budget={budget}: no width comes within {100 * MAX_COST_ERROR:.0f} % of {target:,} {NAMES[unit]}; "
            f"the nearest this model can have: {' and '.join(map(str, reached[:2]))}"
        )
    reason = failure or f"{plan.budget_by} changes nothing in this model"
    raise ConfigError(f"budget={budget}: {reason}")


def parse_budget(budget: str) -> tuple[str, int | str]:
    """The unit, and a number or the name of an attention. Raises ConfigError for anything else."""
    unit, _, amount = budget.partition(":")
    if unit not in NAMES or not amount:
        raise ConfigError(f"budget={budget}: give params: or flops: and a number or an attention, as in params:6.38M")
    if number := re.fullmatch(r"(-?\d*\.?\d+(?:[eE]\+?\d+)?)([KMGB]?)", amount.upper()):
        target = float(number[1]) * FACTORS[number[2]]
        if not 1 <= target <= MAX_BUDGET:
            raise ConfigError(f"budget={budget}: should be between 1 and {MAX_BUDGET:.0e}")
        return unit, round(target)
    names = option_names("attention")
    if amount not in names:
        hint = nearest(amount, names) if amount[0].isalpha() else ""
        raise ConfigError(f"budget={budget}: {amount} is neither a number such as 6.38M nor an attention{hint}")
    return unit, amount


def _cost_with(attention: str, plan: RunPlan, data: DataSpec, unit: str) -> int:
    """The cost of the model with another attention and its default options."""
    try:
        return model_cost(plan.with_options({"attention": load_option("attention", attention)}), data, unit)
    except ConfigError as error:
        raise ConfigError(f"budget={plan.budget}: {error}") from error


def _list_widths(plan: RunPlan) -> list[Width]:
    """The widths that may change, in the order in which they are tried."""
    encoder: EncoderOptions = plan.model.encoder.build()
    inner_mult = plan.plain["attention"].get("inner_mult")  # not one of a hybrid's, whose members differ
    heads, dim, head_dim = encoder.num_heads, encoder.dim, encoder.head_dim
    found = []
    if inner_mult is not None:
        channel = Fraction(1, head_dim or dim // heads)  # one channel more in every head
        found.append(Width("attention.inner_mult", channel, round(Fraction(inner_mult) / channel)))
    found.append(Width("encoder.mlp_dim", Fraction(1), encoder.mlp_dim))
    waves = {"sincos": 2, "sincos2d": 4, "rope": 4 * heads}.get(encoder.position, 1)  # sine and cosine pairs
    step = math.lcm(waves, heads) if head_dim is None else waves if encoder.position != "rope" else 1
    found.append(Width("encoder.dim", Fraction(step), max(1, dim // step)))
    wanted = plan.budget_by
    if wanted is None:
        return found
    if wanted not in [width.key for width in found]:
        raise ConfigError(
            f"budget_by={wanted}: this attention has no such width; choose {' or '.join(width.key for width in found)}"
        )
    return [width for width in found if width.key == wanted]


def _find_nearest(width: Width, plan: RunPlan, data: DataSpec, unit: str, target: int) -> list[Model]:
    """The models just below and just above the target; [] if the width does not change the cost."""

    @cache
    def cost(steps: int) -> int:
        return model_cost(width.changed(plan, steps), data, unit)

    if cost(2 * width.start) == cost(width.start):
        return []
    return [Model(width, steps, cost(steps)) for steps in sorted(set(_bracket_steps(cost, target, width.start)))]


def _bracket_steps(cost: Callable[[int], int], target: int, start: int) -> tuple[int, int]:
    """Neighbouring numbers of steps with the target between their costs; the same number twice if it lies outside."""
    high = start
    while cost(high) < target:
        if 2 * high > MAX_WIDTH_STEPS:
            return high, high
        high *= 2
    above = 1 + bisect_left(range(1, high), target, key=cost)
    return max(1, above - int(cost(above) > target)), above


def model_cost(plan: RunPlan, data: DataSpec, unit: str) -> int:
    """The cost of a plan's model in `params` or `flops`. Raises ConfigError if it cannot be built.

    The model is on the meta device, unless its forward pass reads values, such as the edges of a graph.
    """
    with _hide_messages():
        with torch.device("meta"):
            task = build_task(plan, data).to("meta")
        if unit == "params":
            return num_parameters(task)
        try:
            return cost_per_sample(task)["multiply_adds"]
        except RuntimeError:
            return cost_per_sample(build_task(plan, data))["multiply_adds"]


@contextmanager
def _hide_messages() -> Iterator[None]:
    """Hides log lines and warnings, which the run repeats when it builds the model."""
    before = logging.root.manager.disable
    logging.disable(logging.INFO)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
