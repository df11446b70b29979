"""What the encoder asks of a block, whatever it is made of."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from torch import Tensor, nn

from sliceformer_lab.attention.base import Attention
from sliceformer_lab.batch import Edges, Padding


class EncoderBlock(nn.Module, ABC):
    """One layer of the encoder around an attention. (B, N, C) -> (B, N, C).

    Its constructor takes the layer's spec, the attention and the encoder's options positionally, and the user's
    options keyword-only: these are the schema of its YAML.
    """

    needs_edges: ClassVar[bool] = False  # convolves along the edges of a graph
    projects: ClassVar[bool] = False  # the block has the projections, its attention only mixes (spec.project=False)
    place: ClassVar[str] = "any attention"  # what `accepts` says, in words
    attention: Attention
    reads_edge_features: bool = False  # and wants them embedded
    shares_gain: bool = False  # then the encoder puts one `gain` in place of every block's

    def __init__(self) -> None:
        super().__init__()
        self.gain: nn.Parameter | None = None  # scale of the branches; not a class attribute, which would hide it

    @classmethod
    def accepts(cls, kind: type[Attention]) -> bool:
        """Whether attentions of this class can fill the block."""
        del kind
        return True

    @abstractmethod
    def forward(
        self, x: Tensor, padding: Padding | None = None, bias: Tensor | None = None, edges: Edges | None = None
    ) -> Tensor:
        """(B, N, C) -> (B, N, C); bias (B, H, N, N) goes to the attention, edges to a block that convolves."""

    @abstractmethod
    def attention_input(self, x: Tensor, padding: Padding | None = None) -> Tensor:
        """What the attention of this block reads of the block's input. (B, N, C) -> (B, N, C)."""

    def build_final_norm(self) -> nn.Module | None:
        """A fresh norm for the end of the encoder, or None if there is none."""
        return None
