"""The shift of each channel, and the channels that are sorted downwards: integers fixed at construction."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Sequence
from typing import Literal

import numpy as np

Shift = Literal[
    "none",
    "head_block",
    "unit",
    "linear_paper",
    "linear_coprime",
    "linear_window",
    "linear_window0",
    "exp_code",
    "power_paper",
]
InterleaveRule = Literal["block", "sine_exact"]


def shift_steps(
    shift: Shift,
    num_channels: int,
    max_len: int,
    *,
    num_heads: int = 1,
    index: int = 0,
    depth: int = 1,
    window: int = 2,
    reference: bool = False,
    wrap: bool = True,
) -> list[int]:
    """The shift of each channel of layer `index` of `depth`: num_channels steps.

    They are in [0, max_len), unless `wrap` is false.

    `max_len` is a constant of the run; steps computed from a batch's padded length would make the result depend on the
    amount of padding. With `reference`, linear_paper starts at 0, because channel 0 stays in place.
    `linear_coprime` is ours: the stride of linear_paper, enlarged until it has no common divisor with max_len, and a
    larger one in each further layer. So a few layers reach every distance, where multiples of one stride never do.
    Source: CSP, section 3.2 and Table 1; linear_window, linear_window0 and exp_code follow the published code.
    """
    channels = range(num_channels)
    exponents = [(index * num_channels + c) / (depth * num_channels) for c in channels]  # counted over all layers
    match shift:
        case "none":
            steps = [0 for _ in channels]
        case "head_block":
            steps = [num_heads * (c * num_heads // num_channels) for c in channels]
        case "unit":
            steps = list(channels)
        case "linear_paper":
            steps = [(c + (not reference)) * math.ceil(max_len / num_channels) for c in channels]
        case "linear_coprime":
            stride = _coprime(math.ceil(max_len / num_channels), max_len, index)
            steps = [(c + (not reference)) * stride for c in channels]
        case "linear_window":
            steps = [window * max(c - 1, 0) for c in channels]
        case "linear_window0":
            steps = [window * c for c in channels]
        case "exp_code":
            steps = [math.ceil(max_len**exponent) for exponent in exponents]
        case "power_paper":
            # The paper rounds the base N^(1 / (LC - 1)) down to 1, which makes every step 0; here it stays real.
            stretch = depth * num_channels / max(depth * num_channels - 1, 1)
            steps = [round(max_len ** (exponent * stretch)) - 1 for exponent in exponents]
    return [step % max_len for step in steps] if wrap else steps


def distances_reached(layers: Sequence[Collection[int]], max_len: int) -> list[int]:
    """How many distances (target less source, modulo max_len) the first 1, 2, ... layers with these steps can bridge.

    A value may also stay where it is in any layer, because a block has a skip connection.
    """
    reached, found = np.arange(max_len) == 0, []
    for steps in layers:
        if not reached.all():
            reached = np.logical_or.reduce([np.roll(reached, step) for step in {0, *steps}])
        found.append(int(reached.sum()))
    return found


def _coprime(least: int, number: int, index: int) -> int:
    """The integer `index` (0-based) of those from `least` on that have no common divisor with `number`."""
    candidates = (value for value in itertools.count(least) if math.gcd(value, number) == 1)
    return next(itertools.islice(candidates, index, None))


def interleave_columns(rule: InterleaveRule, num_channels: int, doublings: int) -> list[bool]:
    """Whether each of num_channels columns is sorted downwards; each doubling doubles the number of alternations.

    doublings = 0 sorts everything upwards. `sine_exact` is Sliceformer's sign of sin(2^doublings pi i / C), i = 1..C,
    in integers, because floating point is wrong at the zeros; `block` has the published code's blocks of equal width.
    """
    if rule == "block":
        width = max(1, num_channels >> doublings)
        return [c // width % 2 == 1 for c in range(num_channels)]
    period = 2 * num_channels
    return [(i << doublings) % period > num_channels for i in range(1, num_channels + 1)]
