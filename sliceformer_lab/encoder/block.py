"""The transformer block: an attention and an MLP, each beside a skip connection."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from sliceformer_lab.attention.base import Attention, LayerSpec
from sliceformer_lab.batch import Edges, Padding
from sliceformer_lab.encoder.base import EncoderBlock
from sliceformer_lab.encoder.encoder_options import EncoderOptions
from sliceformer_lab.encoder.hints import without_decay
from sliceformer_lab.encoder.layers import DropPath, GELUTanh, Mlp
from sliceformer_lab.encoder.norm import NormKind, build_norm, normalise

ACTIVATIONS: dict[str, type[nn.Module]] = {"gelu": nn.GELU, "gelu_tanh": GELUTanh, "relu": nn.ReLU, "silu": nn.SiLU}


class Block(EncoderBlock):
    """x + attention, then + MLP, normalised before (Xiong et al. 2020) or after each sum. (B, N, C) -> (B, N, C).

    The skip connections always add the tokens as they came in, never permuted ones. With a ReZero residual
    (Bachlechner et al. 2020) both branches are scaled by one number that starts at 0. A parallel block feeds both
    branches the same normalised tokens (Wang & Komatsuzaki 2021). Raises ValueError for a parallel post-norm block.
    """

    has_skips: bool = True  # an analysis may look at a block without its skip connections

    def __init__(
        self,
        spec: LayerSpec,
        attention: Attention,
        encoder: EncoderOptions,
        *,
        norm: NormKind = "layernorm",
        norm_eps: Annotated[float, Field(gt=0)] = 1e-5,
        norm_first: bool = True,
        final_norm: bool = True,
        activation: Literal["gelu", "gelu_tanh", "relu", "silu"] = "gelu",
        residual: Literal["plain", "rezero", "rezero_shared"] = "plain",
        parallel: bool = False,
    ) -> None:
        super().__init__()
        if parallel and not norm_first:
            raise ValueError("parallel=true needs norm_first=true: both branches read the same normalised tokens")
        self.norm_first, self.parallel = norm_first, parallel
        self.norm1 = build_norm(norm, spec.dim, norm_eps)
        self.attention = attention
        self.dropout = nn.Dropout(encoder.dropout)
        self.norm2 = nn.Identity() if parallel else build_norm(norm, spec.dim, norm_eps)
        self.mlp: nn.Module = Mlp(spec.dim, encoder.mlp_dim, act_layer=ACTIVATIONS[activation], drop=encoder.dropout)
        self.drop_path = DropPath(encoder.drop_path_at(spec.index))
        self.shares_gain = residual == "rezero_shared"
        self.gain = None if residual == "plain" else without_decay(nn.Parameter(torch.zeros(())))
        self._final_norm = partial(build_norm, norm, spec.dim, norm_eps) if final_norm else None

    def build_final_norm(self) -> nn.Module | None:
        """A fresh norm of this kind for the end of the encoder, or None where the options want none there."""
        return None if self._final_norm is None else self._final_norm()

    def attention_input(self, x: Tensor, padding: Padding | None = None) -> Tensor:
        """What the attention of this block reads of the block's input. (B, N, C) -> (B, N, C)."""
        return normalise(self.norm1, x, padding) if self.norm_first else x

    def forward(
        self, x: Tensor, padding: Padding | None = None, bias: Tensor | None = None, edges: Edges | None = None
    ) -> Tensor:
        """(B, N, C) -> (B, N, C); bias (B, H, N, N) goes to the attention."""
        del edges
        h = self.attention_input(x, padding)
        mixed = self.dropout(self.attention(h, padding, bias))
        if self.parallel:
            return self._beside(x, mixed + self.mlp(h))
        return self._feed_forward(self._beside(x, mixed), padding)

    def _feed_forward(self, x: Tensor, padding: Padding | None) -> Tensor:
        if self.norm_first:
            return self._beside(x, self.mlp(normalise(self.norm2, x, padding)))
        x = normalise(self.norm1, x, padding)
        return normalise(self.norm2, self._beside(x, self.mlp(x)), padding)

    def _beside(self, x: Tensor, y: Tensor) -> Tensor:
        """The tokens and what a branch made of them."""
        return x + self._branch(y) if self.has_skips else y

    def _branch(self, y: Tensor) -> Tensor:
        y = self.drop_path(y)
        return y if self.gain is None else self.gain * y
