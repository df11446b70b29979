"""LION-S: linear attention in both directions, with decays computed from the tokens."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sliceformer_lab.attention.base import LayerSpec
from sliceformer_lab.attention.lion import Lion
from sliceformer_lab.attention.precision import widen
from sliceformer_lab.batch import Padding


class LionSelective(Lion):
    """LION whose weights decay at each token by a factor computed from it. (B, N, dim) -> (B, N, dim).

    A path collects the factors of its source and of the tokens between, not of its target; the first token has
    factor 1.
    """

    mixable = False  # factors are computed from the layer's input
    source = "LION, arXiv 2502.16249, section 3 (LION-S)"
    deviation = "LION: the factors receive no gradient, so the published LION-S has random ones"

    def __init__(self, spec: LayerSpec) -> None:
        super().__init__(spec)
        self.decays = self.order_sensitive = True
        self.factor = nn.Linear(spec.dim, spec.num_heads)
        nn.init.trunc_normal_(self.factor.weight, std=0.02)
        nn.init.zeros_(self.factor.bias)

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Values and queries (B, N, H*D), keys (B, N, H*(D + 1)): the last channel of a head is the factor's log."""
        v, q, k = super().project(x)
        log_factor = F.logsigmoid(-widen(self.factor(x)))  # 1 - sigmoid, without its rounding to 0
        keys = torch.cat([torch.unflatten(k, -1, (self.spec.num_heads, -1)), log_factor[..., None]], dim=-1)
        return v, q, keys.flatten(2)

    def attend(self, v: Tensor, q: Tensor, k: Tensor, padding: Padding | None, dropout: float) -> Tensor:
        """(B, H, N, E) values, (B, H, N, D) queries, keys (B, H, N, D + 1) of `project` -> (B, H, N, E)."""
        del dropout  # no weight is ever computed
        log_factor = F.pad(widen(k[..., 1:, -1]), (1, 0))  # the first token's is 1
        return self.attend_decayed(v, q, k[..., :-1].to(q.dtype), log_factor, padding)
