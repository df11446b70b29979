"""Set Transformer: layers in which one set attends to another, and the block and the pooling built from them."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt

import torch
from torch import Tensor, nn

from sliceformer_lab.attention.base import ALONE, Attention, BlockInputs, LayerSpec
from sliceformer_lab.attention.dropout import Dropout
from sliceformer_lab.attention.mha import MHA
from sliceformer_lab.attention.sliceformer import Sliceformer
from sliceformer_lab.batch import Padding
from sliceformer_lab.config.option_types import Count
from sliceformer_lab.encoder.base import EncoderBlock
from sliceformer_lab.encoder.encoder_options import EncoderOptions
from sliceformer_lab.encoder.layers import DropPath, without_decay


class MAB(nn.Module):
    """Tokens attend to a context: h = q + mix(q, k, v), then h + relu(W h). (B, M, C), (B, N, C) -> (B, M, C).

    The skip connection adds the projected queries, not the tokens. Scores are divided by sqrt(C), the width of all
    heads, as in the published code. An attention without queries and keys mixes only the context's values, which needs
    M = N. Raises ValueError if the attention is not as wide as the tokens, and for rope.
    Source: Lee et al. 2019, equations (6) and (7).
    """

    def __init__(
        self, spec: LayerSpec, attention: Attention, *, layer_norm: bool, dropout: float = 0.0, drop_path: float = 0.0
    ) -> None:
        super().__init__()
        if spec.rope:
            raise ValueError("position=rope rotates the queries and keys of a sequence; a set needs another position")
        if attention.width != spec.dim:
            raise ValueError(
                f"the attention is {attention.width} channels wide but is added to queries of dim={spec.dim}; "
                "leave head_dim and inner_mult at their defaults"
            )
        self.attention = attention
        self.query = nn.Linear(spec.dim, spec.dim, bias=spec.value_bias)
        self.key = nn.Linear(spec.dim, spec.dim, bias=spec.value_bias) if attention.needs_qk else None
        self.value = nn.Linear(spec.dim, spec.dim, bias=spec.value_bias)
        self.norm1 = nn.LayerNorm(spec.dim) if layer_norm else nn.Identity()
        self.out = nn.Linear(spec.dim, spec.dim, bias=spec.out_bias)
        self.norm2 = nn.LayerNorm(spec.dim) if layer_norm else nn.Identity()
        self.drop = nn.Sequential(Dropout(dropout), DropPath(drop_path))

    def forward(self, x: Tensor, context: Tensor, padding: Padding | None = None, bias: Tensor | None = None) -> Tensor:
        """(B, M, C) tokens, (B, N, C) context -> (B, M, C); `padding` is the context's, bias (B, H, M, N)."""
        q = self.query(x)
        h = self.norm1(q + self.drop(self._read_context(q, context, padding, bias)))
        return self.norm2(h + self.drop(self.out(h).relu()))

    def _read_context(self, q: Tensor, context: Tensor, padding: Padding | None, bias: Tensor | None) -> Tensor:
        """The attention's output for queries (B, M, C) and a context (B, N, C). -> (B, M, C)."""
        attention, v = self.attention, self.value(context)
        if self.key is None:
            mixed = attention.mix(v, given=BlockInputs(padding, bias))
        else:
            q = q / sqrt(attention.spec.num_heads)  # with the mix's own 1 / sqrt(D): 1 / sqrt(C)
            mixed = attention.mix(v, q, self.key(context), BlockInputs(padding, bias))
        return attention.project_out(v, mixed)


class PMA(nn.Module):
    """Learned seeds attend to a set with softmax attention. (B, N, C) -> (B, num_seeds, C).

    Source: Lee et al. 2019, equation (11), without the row-wise layer before it.
    """

    def __init__(self, spec: LayerSpec, *, num_seeds: int = 1, layer_norm: bool = False, dropout: float = 0.0) -> None:
        super().__init__()
        self.seeds = without_decay(nn.Parameter(torch.empty(1, num_seeds, spec.dim)))
        nn.init.xavier_uniform_(self.seeds)
        self.mab = MAB(spec, MHA(replace(spec, project=False)), layer_norm=layer_norm, dropout=dropout)

    def forward(self, x: Tensor, padding: Padding | None = None) -> Tensor:
        """(B, N, C) -> (B, num_seeds, C)."""
        return self.mab(self.seeds.expand(x.shape[0], -1, -1), x, padding)


class SetBlock(EncoderBlock):
    """A set attends to itself, directly or through learned points that attend to it first. (B, N, C) -> (B, N, C).

    `inducing=null` is the set attention block (SAB), a number the induced one (ISAB) at cost N * inducing. Each half of
    the block has one linear layer in place of an MLP, so encoder.mlp_dim has no effect. Sliceformer adds the sorted
    values to the queries token by token. It needs as many values as queries, so inducing=null.
    Raises ValueError for sliceformer with inducing points; `forward` raises it for inducing points with a bias.
    Source: Lee et al. 2019, equations (8) to (10); Sliceformer's point cloud code.
    """

    projects = True
    place = "mha or sliceformer"

    def __init__(
        self,
        spec: LayerSpec,
        attention: Attention,
        encoder: EncoderOptions,
        first: EncoderBlock | None = None,
        *,
        inducing: Count | None = None,
        layer_norm: bool = False,
    ) -> None:
        del first
        super().__init__()
        if inducing is not None and not attention.needs_qk:
            raise ValueError(
                f"inducing={inducing} leaves {type(attention).__name__} with fewer values than queries to add them to; "
                "set block.inducing=null or choose attention=mha"
            )
        self.attention = attention
        self.points: PMA | None = None
        if inducing is not None:
            self.points = PMA(spec, num_seeds=inducing, layer_norm=layer_norm, dropout=encoder.dropout)
        drop_path = encoder.drop_path_at(spec.index)
        self.mab = MAB(spec, attention, layer_norm=layer_norm, dropout=encoder.dropout, drop_path=drop_path)

    @classmethod
    def accepts(cls, kind: type[Attention]) -> bool:
        """Whether attentions of this class can fill the block: softmax, or a sort over the whole set."""
        return issubclass(kind, MHA | Sliceformer)

    def forward(self, x: Tensor, given: BlockInputs = ALONE) -> Tensor:
        """(B, N, C) -> (B, N, C)."""
        context, padding = x, given.padding
        if self.points is not None:
            if given.bias is not None:
                raise ValueError("a pairwise bias has no place with inducing points; set block.inducing=null")
            context, padding = self.points(x, padding), None
        return self.mab(x, context, padding, given.bias)
