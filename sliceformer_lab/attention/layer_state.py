"""What a layer reads besides its tokens, and what layers leave for each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from sliceformer_lab.batch import Edges, Padding


@dataclass
class LayerState:
    """The state of one forward pass through the layers. The encoder makes one and passes it to every block."""

    value: Tensor | None = None  # (B, S, width) of the last attention with `passes_state`; None before the first
    edge_features: Tensor | None = None  # (E, C) edges of the graphs, changed by the layers so far; None before them


class BlockInputs(NamedTuple):
    """What the encoder gives a block besides the tokens, and the block its attention."""

    padding: Padding | None = None
    bias: Tensor | None = None  # (B, H, N, N); None for an attention that does not accept one
    edges: Edges | None = None  # for a block that convolves
    state: LayerState | None = None
    tokens: Tensor | None = None  # (B, N, C) before the block's norm; None for the block, and without a norm

    def zero_padding(self, x: Tensor) -> Tensor:
        """x (B, N, C) with zeros at padded tokens."""
        return x if self.padding is None else x.masked_fill(~self.padding.mask[:, :, None], 0)


ALONE = BlockInputs()  # the tokens alone: no padding, no bias
