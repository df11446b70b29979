"""The MEGA block: moving averages and gates around any attention that mixes values, queries and keys."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from sliceformer_lab.attention.base import ALONE, Attention, BlockInputs, LayerSpec
from sliceformer_lab.attention.dropout import Dropout
from sliceformer_lab.batch import Padding
from sliceformer_lab.config.option_types import Count, Fraction, Positive
from sliceformer_lab.encoder.base import EncoderBlock
from sliceformer_lab.encoder.block import Block
from sliceformer_lab.encoder.ema import DampedEMA
from sliceformer_lab.encoder.encoder_options import EncoderOptions
from sliceformer_lab.encoder.layers import Mlp
from sliceformer_lab.encoder.linear_init import start_small
from sliceformer_lab.encoder.norm import NormKind, normalise


class MegaBlock(Block):
    """Gated attention over averaged tokens, then an MLP, each with a skip connection. (B, N, C) -> (B, N, C).

    Values are computed from the tokens; queries, keys and gates from the moving average of the tokens. Queries and keys
    are two scalings of one projection. The output of the attention is gated (r) and added to a candidate; a second gate
    (u) interpolates between the sum and the input token. An attention without queries and keys (csp) allocates none.
    The paper has one head; its hidden width is the encoder's `head_dim` and `mlp_dim`.
    Source: MEGA (Ma et al. 2023), section 3; MEGA+CSP is that of the CSP paper's table 4.
    """

    accepts_causal = False  # its moving average runs in both directions
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
        first: EncoderBlock | None = None,
        *,
        ema_dim: Count = 16,
        bidirectional: bool = True,
        truncation: Count | None = 1024,
        norm: NormKind = "layernorm",
        norm_eps: Positive = 1e-5,
        norm_first: bool = False,
        final_norm: bool = False,
        ffn: bool = True,
        hidden_dropout: Fraction = 0.0,
    ) -> None:
        super().__init__(
            spec, attention, encoder, first, norm=norm, norm_eps=norm_eps, norm_first=norm_first, final_norm=final_norm
        )
        dim, width, qk_width = spec.dim, attention.width, attention.qk_width
        self.ema = DampedEMA(dim, ema_dim, bidirectional=bidirectional, truncation=truncation)
        self.value = nn.Linear(dim, width, bias=spec.value_bias)
        self.widths = [dim, qk_width, width, dim]  # update gate, z, reset gate, candidate
        self.gates = nn.Linear(dim, sum(self.widths))
        self.out = nn.Linear(width, dim, bias=spec.out_bias)
        self.qk_scale = nn.Parameter(0.02 * torch.randn(2, qk_width)) if attention.needs_qk else None
        self.qk_shift = nn.Parameter(torch.zeros(2, qk_width)) if attention.needs_qk else None
        self.hidden_dropout = Dropout(hidden_dropout)
        self.has_ffn = ffn
        if ffn:
            self.mlp = Mlp(dim, encoder.mlp_dim, act_layer=nn.SiLU, drop=(hidden_dropout, encoder.dropout))
        else:
            self.norm2, self.mlp = nn.Identity(), nn.Identity()
        own = nn.ModuleList([self.value, self.gates, self.out, self.mlp])
        for linear in (module for module in own.modules() if isinstance(module, nn.Linear)):
            start_small(linear, 0.02)

    def forward(self, x: Tensor, given: BlockInputs = ALONE) -> Tensor:
        """(B, N, C) -> (B, N, C)."""
        h = self.attention_input(x, given.padding)
        averaged = self.dropout(self.ema(h, given.padding))
        update, z, reset, candidate = self.gates(averaged).split(self.widths, dim=-1)
        v = self.hidden_dropout(functional.silu(self.value(h)))
        mixed = self._mix_values(v, functional.silu(z), given)
        h = self.dropout(functional.silu(candidate + self.out(mixed * functional.silu(reset))))
        return self._feed_forward(self.add_residual(x, update.sigmoid() * (h - x)), given.padding)

    def _feed_forward(self, x: Tensor, padding: Padding | None) -> Tensor:
        if self.has_ffn:
            return super()._feed_forward(x, padding)
        return x if self.norm_first else normalise(self.norm1, x, padding)

    def _mix_values(self, v: Tensor, z: Tensor, given: BlockInputs) -> Tensor:
        q, k = None, None
        if self.qk_scale is not None and self.qk_shift is not None:
            q, k = (z[..., None, :] * self.qk_scale + self.qk_shift).unbind(-2)
            q, k = self.attention.rotated(q), self.attention.rotated(k)
        return self.attention.project_out(v, self.attention.mix(v, q, k, given))
