"""The user's options of the whole encoder: sizes, dropouts, positions and initial weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from sliceformer_lab.config.option_types import Count, Fraction, Positive

LinearInit = Literal["torch", "lra", "graphormer"]
BERT, BERT_EPS = "bert", 1e-12  # as a source of weights; what its norms add to the variance
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
    init: str | None = None  # starts from pretrained weights: 'timm:<model>', or 'bert' with its folder in init_file
    init_file: str | None = None  # timm's weights in a local file, in place of a download; the folder of a BERT
    init_attention: bool = False  # also the layers of the pretrained attention that this attention has by name

    def __post_init__(self) -> None:
        if self.init is not None and self.init != BERT and not self.init.startswith("timm:"):
            raise ValueError(
                f"init={self.init} names no known source; write timm:<model>, as timm:vit_small_patch16_224, or {BERT}"
            )
        if self.init_file is not None and self.init is None:
            raise ValueError(
                f"init_file needs init=timm:<model> or init={BERT}, the kind of model whose weights it holds"
            )
        if self.init == BERT and self.init_file is None:
            raise ValueError(f"init={BERT} needs init_file=FOLDER, with config.json and model.safetensors of the model")

    @property
    def embed_norm_eps(self) -> float:
        """What the norm of the embeddings adds to the variance."""
        return BERT_EPS if self.init == BERT else 1e-5

    def drop_path_at(self, index: int) -> float:
        """The probability that block `index` is skipped."""
        return self.drop_path * index / max(self.depth - 1, 1)
