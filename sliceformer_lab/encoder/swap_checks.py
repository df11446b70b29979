"""What every swap checks: the requested layers, and the padding of each batch."""

from __future__ import annotations

import operator
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from sliceformer_lab.batch import Padding

SUFFIX = "a swapped attention needs padding behind the tokens; pad on the right (padding_side='right')"


def chosen_layers(layers: Iterable[int] | None, depth: int) -> list[int]:
    """The layers to swap, each once. Raises ValueError for what is no list of layers that a model of `depth` has."""
    if layers is None or not depth:  # a model without layers is refused by what builds them
        return list(range(depth))
    given = list(layers) if isinstance(layers, Iterable) else [None]
    chosen = [operator.index(i) for i in given if hasattr(i, "__index__") and not isinstance(i, bool)]
    if len(chosen) < len(given) or not all(0 <= index < depth for index in chosen):
        raise ValueError(f"layers={layers!r}: the model has layers 0 to {depth - 1}; give a list of them")
    return list(dict.fromkeys(chosen))


def refuse_meta(weight: Tensor) -> None:
    """Raises ValueError if a model's weight is on the meta device: what an attention computes itself would be lost."""
    if weight.is_meta:
        raise ValueError("a model on the meta device cannot be swapped; load its weights first")


def refuse_hooks(old: nn.Module, index: int) -> None:
    """Raises ValueError if a module that a swap takes out of layer `index`, or a part of it, has hooks."""
    for name, part in old.named_modules():
        own = part._forward_hooks, part._forward_pre_hooks, part._backward_hooks, part._backward_pre_hooks
        if any(own):
            raise ValueError(
                f"layer {index}: {name or type(old).__name__} has hooks, which the swap would drop; remove them, and "
                "register them on the swapped model"
            )


def suffix_padding(real: Tensor | None) -> Padding | None:
    """The padding of a mask (B, N) bool, True on real tokens. Raises ValueError if padding is not a suffix.

    A compiled program raises RuntimeError, an exported one trusts its masks.
    """
    if real is None:
        return None
    gaps = (real[:, 1:] & ~real[:, :-1]).any()
    if torch.compiler.is_dynamo_compiling():  # torch 2.11 compiles is_exporting() to True
        torch._assert_async(~gaps, SUFFIX)
    elif not torch.compiler.is_compiling() and bool(gaps):
        raise ValueError(SUFFIX)
    return Padding(real.sum(dim=1).clamp(min=1), real)
