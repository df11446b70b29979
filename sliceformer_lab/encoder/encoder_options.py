"""The user's options of the whole encoder: sizes, dropouts, positions and initial weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from sliceformer_lab.config.option_types import Count, Fraction, Positive

LinearInit = Literal["torch", "lra", "graphormer"]
PositionKind = Literal["learned", "sincos", "sincos2d", "rope", "none"]


@dataclass(frozen=True, kw_only=True)
class EncoderOptions:
    """The options of `conf/encoder/*.yaml`. Raises ValueError for an unknown source of initial weights."""

    dim: Count  # residual width
    depth: Annotated[int, Field(ge=1, le=1000)]  # number of blocks
    num_heads: Count
    head_dim: Count | None = None  # None: dim / num_heads
    mlp_dim: Count  # hidden width of the MLP
    position: PositionKind
    position_std: Positive = 0.02  # of learned positions and of the CLS token at the start
    embed_norm: bool = False  # a layer norm of tokens plus positions, before the first block
    dropout: Fraction = 0.0  # after the attention and twice in the MLP
    embed_dropout: Fraction = 0.0  # on tokens plus positions
    attention_dropout: Fraction = 0.0  # on the attention's own weights
    drop_path: Fraction = 0.0  # of the last block; grows linearly from 0 in the first
    value_bias: bool = True  # of value, and of query and key where they exist
    out_bias: bool = True
    linear_init: LinearInit = "torch"  # initial weights of linear layers, see linear_init.py
    checkpoint: bool = False  # keep only the input of each block for the backward pass, which runs the block again
    init: str | None = None  # 'timm:<model>' starts from its pretrained weights, except for the attention
    init_file: str | None = None  # those weights in a local file, in place of a download

    def __post_init__(self) -> None:
        if self.init is not None and not self.init.startswith("timm:"):
            raise ValueError(
                f"init={self.init} names no known source; write timm:<model>, as timm:vit_small_patch16_224"
            )
        if self.init_file is not None and self.init is None:
            raise ValueError("init_file needs init=timm:<model>, the model whose weights it holds")

    def drop_path_at(self, index: int) -> float:
        """The probability that block `index` is skipped."""
        return self.drop_path * index / max(self.depth - 1, 1)
