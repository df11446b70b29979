"""Marks on parameters that the optimiser reads."""

from __future__ import annotations

from torch import nn


def without_decay(parameter: nn.Parameter) -> nn.Parameter:
    """The same parameter, marked as excluded from weight decay. A deep copy loses the mark."""
    parameter.no_decay = True  # type: ignore[attr-defined]
    return parameter
