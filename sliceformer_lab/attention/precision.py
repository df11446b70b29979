"""The type in which an attention computes what 16 bits would lose."""

from __future__ import annotations

import torch
from torch import Tensor


def wide_type(x: Tensor) -> torch.dtype:
    """float32, or the type of x if that is wider."""
    return torch.promote_types(x.dtype, torch.float32)


def widen(x: Tensor) -> Tensor:
    """x in its wide type."""
    return x.to(wide_type(x))
