"""The transformer block: an attention and an MLP, each with a skip connection."""

from __future__ import annotations

from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn

from sliceformer_lab.attention.base import ALONE, Attention, BlockInputs, LayerSpec
from sliceformer_lab.attention.dropout import Dropout
from sliceformer_lab.batch import Padding
from sliceformer_lab.config.option_types import Positive
from sliceformer_lab.encoder.base import EncoderBlock
from sliceformer_lab.encoder.encoder_options import EncoderOptions
from sliceformer_lab.encoder.layers import DropPath, GELUTanh, Mlp, without_decay
from sliceformer_lab.encoder.norm import NormKind, build_norm, normalise

ACTIVATIONS: dict[str, type[nn.Module]] = {"gelu": nn.GELU, "gelu_tanh": GELUTanh, "relu": nn.ReLU, "silu": nn.SiLU}


class Block(EncoderBlock):
    """x + attention, then + MLP, normalised before (Xiong et al. 2020) or after each sum. (B, N, C) -> (B, N, C).

    The skip connections add the input tokens, never permuted ones. With `residual=rezero_shared` (ReZero, Bachlechner
    et al. 2020), one number that starts at 0 scales the branches of all blocks; with `residual=none` a branch takes the
    place of its input. Raises ValueError for batch normalisation in a causal layer, because its statistics are of all
    tokens, and for stochastic depth without skip connections.
    """

    accepts_causal = True

    def __init__(
        self,
        spec: LayerSpec,
        attention: Attention,
        encoder: EncoderOptions,
        first: EncoderBlock | None = None,
        *,
        norm: NormKind = "layernorm",
        norm_eps: Positive = 1e-5,
        norm_first: bool = True,
        final_norm: bool = True,
        activation: Literal["gelu", "gelu_tanh", "relu", "silu"] = "gelu",
        residual: Literal["plain", "rezero_shared", "none"] = "plain",
    ) -> None:
        super().__init__()
        if spec.causal and norm == "batchnorm":
            raise ValueError("norm=batchnorm takes statistics of later tokens too; choose norm=layernorm")
        if residual == "none" and encoder.drop_path:
            raise ValueError("drop_path leaves nothing of an example without skip connections; choose drop_path=0")
        self.norm_first = norm_first
        self.norm1 = build_norm(norm, spec.dim, norm_eps)
        self.attention = attention
        self.dropout = Dropout(encoder.dropout)
        self.norm2 = build_norm(norm, spec.dim, norm_eps)
        self.mlp: nn.Module = Mlp(spec.dim, encoder.mlp_dim, act_layer=ACTIVATIONS[activation], drop=encoder.dropout)
        self.drop_path = DropPath(encoder.drop_path_at(spec.index))
        self._has_skips = residual != "none"
        if residual == "rezero_shared":
            self.gain = without_decay(nn.Parameter(torch.zeros(()))) if first is None else first.gain
        self._final_norm = partial(build_norm, norm, spec.dim, norm_eps) if final_norm else None

    def build_final_norm(self) -> nn.Module | None:
        """A new norm of this kind for the end of the encoder, or None with final_norm=false."""
        return None if self._final_norm is None else self._final_norm()

    def attention_input(self, x: Tensor, padding: Padding | None = None) -> Tensor:
        """The tokens, normalised under norm_first. (B, N, C) -> (B, N, C)."""
        return normalise(self.norm1, x, padding) if self.norm_first else x

    def forward(self, x: Tensor, given: BlockInputs = ALONE) -> Tensor:
        """(B, N, C) -> (B, N, C)."""
        mixed = self.attention.attend_in_block(self.attention_input(x, given.padding), given._replace(tokens=x))
        return self._feed_forward(self.add_residual(x, self.dropout(mixed)), given.padding)

    def _feed_forward(self, x: Tensor, padding: Padding | None) -> Tensor:
        if self.norm_first:
            return self.add_residual(x, self.mlp(normalise(self.norm2, x, padding)))
        x = normalise(self.norm1, x, padding)
        return normalise(self.norm2, self.add_residual(x, self.mlp(x)), padding)

    def add_residual(self, x: Tensor, branch: Tensor) -> Tensor:
        """The sum of the tokens and a branch, scaled by the gain. (B, N, C), (B, N, C) -> (B, N, C)."""
        return x + self._scale(branch) if self._has_skips else self._scale(branch)

    def _scale(self, y: Tensor) -> Tensor:
        y = self.drop_path(y)
        return y if self.gain is None else self.gain * y
