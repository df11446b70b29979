"""The block of MEGA: moving averages and gates around any attention that mixes values, queries and keys."""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

from sliceformer_lab.attention.base import Attention, LayerSpec
from sliceformer_lab.batch import Edges, Padding
from sliceformer_lab.encoder.block import Block
from sliceformer_lab.encoder.ema import DampedEMA
from sliceformer_lab.encoder.encoder_options import EncoderOptions, Probability, Size
from sliceformer_lab.encoder.layers import Mlp
from sliceformer_lab.encoder.norm import NormKind, normalise


class MegaBlock(Block):
    """Gated attention over averaged tokens, then an MLP, each beside a skip connection. (B, N, C) -> (B, N, C).

    Values come from the tokens; queries, keys and gates from their moving average, queries and keys as two scalings of
    one projection. What the attention mixed is gated (r), added to a candidate, and a second gate (u) chooses between
    that and the token as it came in. An attention without queries and keys (csp) gets none allocated.
    The paper has one head; its hidden width is the encoder's `head_dim` and `mlp_dim`.
    Source: MEGA (Ma et al. 2023), section 3; MEGA+CSP is that of the CSP paper's table 4.
    """

    projects = True
    place = "attentions that take ready values, queries and keys"

    @classmethod
    def accepts(cls, kind: type[Attention]) -> bool:
        """Attentions whose `mix` is meaningful by itself."""
        return kind.mixable

    def __init__(
        self,
        spec: LayerSpec,
        attention: Attention,
        encoder: EncoderOptions,
        *,
        ema_dim: Size = 16,
        bidirectional: bool = True,
        truncation: Size | None = 1024,
        norm: NormKind = "layernorm",
        norm_eps: Annotated[float, Field(gt=0)] = 1e-5,
        norm_first: bool = False,
        final_norm: bool = False,
        ffn: bool = True,
        hidden_dropout: Probability = 0.0,
    ) -> None:
        super().__init__(
            spec, attention, encoder, norm=norm, norm_eps=norm_eps, norm_first=norm_first, final_norm=final_norm
        )
        dim, width, qk_width = spec.dim, attention.width, attention.qk_width
        self.ema = DampedEMA(dim, ema_dim, bidirectional=bidirectional, truncation=truncation)
        self.value = nn.Linear(dim, width, bias=spec.value_bias)
        self.widths = [dim, qk_width, width, dim]  # update gate, z, reset gate, candidate
        self.gates = nn.Linear(dim, sum(self.widths))
        self.out = nn.Linear(width, dim, bias=spec.out_bias)
        self.qk_scale = nn.Parameter(0.02 * torch.randn(2, qk_width)) if attention.needs_qk else None
        self.qk_shift = nn.Parameter(torch.zeros(2, qk_width)) if attention.needs_qk else None
        self.hidden_dropout = nn.Dropout(hidden_dropout)
        self.has_ffn = ffn
        if ffn:
            self.mlp = Mlp(dim, encoder.mlp_dim, act_layer=nn.SiLU, drop=(hidden_dropout, encoder.dropout))
        else:
            self.norm2, self.mlp = nn.Identity(), nn.Identity()
        for part in (self.value, self.gates, self.out, self.mlp):
            part.apply(_start_small)

    def attention_input(self, x: Tensor, padding: Padding | None = None) -> Tensor:
        """The values, which is all that an attention without projections reads. (B, N, C) -> (B, N, H*D)."""
        return self._values(super().attention_input(x, padding))

    def forward(
        self, x: Tensor, padding: Padding | None = None, bias: Tensor | None = None, edges: Edges | None = None
    ) -> Tensor:
        """(B, N, C) -> (B, N, C); bias (B, H, N, N) goes to the attention."""
        del edges
        h = super().attention_input(x, padding)
        averaged = self.dropout(self.ema(h, padding))
        update, z, reset, candidate = self.gates(averaged).split(self.widths, dim=-1)
        mixed = self._mixed(self._values(h), functional.silu(z), padding, bias)
        h = self.dropout(functional.silu(candidate + self.out(mixed * functional.silu(reset))))
        return self._feed_forward(x + self._branch(update.sigmoid() * (h - x)), padding)

    def _feed_forward(self, x: Tensor, padding: Padding | None) -> Tensor:
        if self.has_ffn:
            return super()._feed_forward(x, padding)
        return x if self.norm_first else normalise(self.norm1, x, padding)

    def _values(self, h: Tensor) -> Tensor:
        values: Tensor = self.attention.value(self.hidden_dropout(functional.silu(self.value(h))))
        return values

    def _mixed(self, v: Tensor, z: Tensor, padding: Padding | None, bias: Tensor | None) -> Tensor:
        q, k = None, None
        if self.qk_scale is not None and self.qk_shift is not None:
            q, k = (z[..., None, :] * self.qk_scale + self.qk_shift).unbind(-2)
            q, k = self.attention.rotated(q), self.attention.rotated(k)
        mixed: Tensor = self.attention.out(self.attention.mix(v, q, k, padding=padding, bias=bias))
        return mixed


def _start_small(module: nn.Module) -> None:
    if isinstance(module, nn.Linear):
        nn.init.normal_(module.weight, std=0.02)
        if module.bias is not None:
            nn.init.zeros_(module.bias)
