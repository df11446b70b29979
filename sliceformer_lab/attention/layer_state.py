"""What the layers of one forward pass leave for each other."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass
class LayerState:
    """The state of one forward pass through the layers. The encoder makes one and passes it to every block."""

    value: Tensor | None = None  # (B, S, width) of the last attention with `passes_state`; None before the first
    edge_features: Tensor | None = None  # (E, C) edges of the graphs, changed by the layers so far; None before them
