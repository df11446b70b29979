"""Hints that parameters carry to the builder of the optimiser."""

from __future__ import annotations

from torch import nn


def without_decay(parameter: nn.Parameter) -> nn.Parameter:
    """The same parameter, marked to be left out of weight decay. A deep copy loses the mark."""
    parameter.no_decay = True  # type: ignore[attr-defined]
    return parameter
