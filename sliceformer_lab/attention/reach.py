"""Which distances between tokens the shifts of a model's layers can bridge, in one sentence."""

from __future__ import annotations

from collections.abc import Sequence

from sliceformer_lab.attention.base import Attention
from sliceformer_lab.attention.csp import CSP
from sliceformer_lab.permute.schedule import distances_reached, shift_steps


def reach_of_shifts(layers: Sequence[Attention]) -> str | None:
    """How many distances one layer of shifts reaches, and all of them; None unless all layers shift a sequence."""
    shifts = [layer for layer in layers if isinstance(layer, CSP)]
    steps = [layer.steps.tolist() for layer in shifts if layer.steps is not None]
    max_len = layers[0].spec.max_len
    if max_len is None or len(steps) < len(layers):
        return None
    reached = distances_reached(steps, max_len)
    sentence = (
        f"the shifts of one layer reach {reached[0]} of {max_len} distances between tokens, "
        f"those of all {len(layers)} layers {reached[-1]}"
    )
    if reached[-1] == max_len:
        return sentence
    window = shifts[0].group_size
    if window == 1:
        return f"{sentence}: no value can bridge the others; attention.shift=linear_coprime reaches all"
    further = "any number of" if window is None else f"at most {window - 1}"
    found = f"{sentence}; only the sort, which moves a value by {further} places in a layer, can bridge the others"
    coprime = [
        shift_steps("linear_coprime", len(own), max_len, index=i, depth=len(layers)) for i, own in enumerate(steps)
    ]
    more = distances_reached(coprime, max_len)[-1]
    return found if more <= reached[-1] else f"{found}; attention.shift=linear_coprime shifts by {more} of them"
