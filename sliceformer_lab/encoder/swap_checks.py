"""What every swap checks: the requested layers, and the padding of each batch."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from sliceformer_lab.batch import Padding

SUFFIX = "a swapped attention needs padding behind the tokens; pad on the right (padding_side='right')"


def chosen_layers(layers: Iterable[int] | None, depth: int) -> list[int]:
    """The layers to swap. Raises ValueError for one that a model of `depth` layers lacks."""
    chosen = list(range(depth) if layers is None else layers)
    if wrong := [index for index in chosen if not 0 <= index < depth]:
        raise ValueError(f"layers={chosen}: the model has layers 0 to {depth - 1}, not {wrong[0]}")
    return chosen


def suffix_padding(real: Tensor | None) -> Padding | None:
    """The padding of a mask (B, N) bool, True on real tokens. Raises ValueError if padding is not a suffix.

    A compiled program raises RuntimeError, an exported one trusts its masks.
    """
    if real is None:
        return None
    gaps = (real[:, 1:] & ~real[:, :-1]).any()
    if torch.compiler.is_compiling():
        if not torch.compiler.is_exporting():
            torch._assert_async(~gaps, SUFFIX)
    elif bool(gaps):
        raise ValueError(SUFFIX)
    return Padding(real.sum(dim=1).clamp(min=1), real)
