"""The contract between the encoder and its blocks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from torch import Tensor, nn

from sliceformer_lab.attention.base import ALONE, Attention, BlockInputs


class EncoderBlock(nn.Module, ABC):
    """One layer of the encoder around an attention. (B, N, C) -> (B, N, C).

    Its constructor takes the layer's spec, the attention, the encoder's options and the encoder's first block (None for
    the first block itself) positionally, and the user's options keyword-only: these are the schema of its YAML.
    """

    needs_edges: ClassVar[bool] = False  # convolves along the edges of a graph
    accepts_causal: ClassVar[bool] = False  # mixes tokens by its attention alone
    projects: ClassVar[bool] = False  # the block does the projections, its attention only mixes (spec.project=False)
    place: ClassVar[str] = "any attention"  # the attentions that `accepts` admits, in words
    attention: Attention
    reads_edge_features: bool = False  # and needs them embedded

    def __init__(self) -> None:
        super().__init__()
        self.gain: nn.Parameter | None = None  # scale of the branches; not a class attribute, which would hide it

    @classmethod
    def accepts(cls, kind: type[Attention]) -> bool:
        """Whether attentions of this class can fill the block."""
        del kind
        return True

    @abstractmethod
    def forward(self, x: Tensor, given: BlockInputs = ALONE) -> Tensor:
        """(B, N, C) -> (B, N, C)."""

    @property
    def passes_state(self) -> bool:
        """Whether the block leaves something in the state that the next one reads."""
        return self.attention.passes_state

    def build_final_norm(self) -> nn.Module | None:
        """A new norm for the end of the encoder, or None if there is none."""
        return None
