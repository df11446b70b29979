"""What a comparison measures: a workload and variants, as plain data for the measuring process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["operator", "layer"]


@dataclass(frozen=True)
class Workload:
    """The sizes of the input and the layer that all variants of a comparison share."""

    name: str
    kind: Kind
    tokens: int
    batch: int
    channels: int
    heads: int = 8
    group_size: int | None = None  # of the operator; None: complete sort


@dataclass(frozen=True)
class Variant:
    """A method with one of its implementations."""

    method: str
    way: str = ""  # a backend of the permutation library, or fused | plain softmax
    node: Mapping[str, Any] | None = None  # of the attention
    backend: str | None = None

    @property
    def name(self) -> str:
        """The name in tables and figures."""
        return f"{self.method} ({self.way})" if self.way else self.method


@dataclass(frozen=True)
class SpeedComparison:
    """Variants that one process measures in turns on one workload."""

    workload: Workload
    variants: tuple[Variant, ...]
    against: Variant  # the denominator of ratios, one of the variants
