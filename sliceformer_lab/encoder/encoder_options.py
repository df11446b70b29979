"""What the user decides for the whole encoder: its sizes, its dropouts, its positions and how it starts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

Size = Annotated[int, Field(ge=1)]
Probability = Annotated[float, Field(ge=0, lt=1)]
PositionKind = Literal["learned", "sincos", "sincos2d", "rope", "none"]


@dataclass(frozen=True, kw_only=True)
class EncoderOptions:
    """The options of `conf/encoder/*.yaml`. Raises ValueError where they contradict each other."""

    dim: Size  # residual width
    depth: Size  # number of blocks
    num_heads: Size
    head_dim: Size | None = None  # None: dim / num_heads
    mlp_dim: Size  # hidden width of the MLP
    position: PositionKind
    dropout: Probability = 0.0  # after the attention and twice in the MLP
    embed_dropout: Probability = 0.0  # on tokens plus positions
    attention_dropout: Probability = 0.0  # on the attention's own weights
    drop_path: Probability = 0.0  # of the last block; grows linearly from 0 in the first
    value_bias: bool = True  # of value, and of query and key where they exist
    out_bias: bool = True
    init: str | None = None  # 'timm:<model>' starts from its pretrained weights, attention excepted
    init_file: str | None = None  # those weights as a local file, instead of a download

    def __post_init__(self) -> None:
        if self.init is not None and not self.init.startswith("timm:"):
            raise ValueError(
                f"init={self.init} names no known source; write timm:<model>, as timm:vit_small_patch16_224"
            )
        if self.init_file is not None and self.init is None:
            raise ValueError("init_file needs init=timm:<model>, which says what the file holds")

    def drop_path_at(self, index: int) -> float:
        """How often block `index` is skipped."""
        return self.drop_path * index / max(self.depth - 1, 1)
