"""Counts subnormal numbers, which a CPU multiplies many times slower than others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode


class CountSubnormals(TorchDispatchMode):
    """Counts the float32 numbers that operators return, and those between 0 and the smallest normal one."""

    numbers = subnormals = 0

    def __torch_dispatch__(
        self, func: OpOverload, types: Sequence[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Call the operator and count in its result."""
        result = func(*args, **kwargs or {})
        if isinstance(result, Tensor) and result.dtype == torch.float32:
            size = result.abs()
            self.numbers += size.numel()
            self.subnormals += int(((size > 0) & (size < torch.finfo(torch.float32).tiny)).sum())
        return result
