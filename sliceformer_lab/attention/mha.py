"""Multi-head softmax attention, the baseline."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sliceformer_lab.attention.base import ALONE, NEVER, Attention, BlockInputs, LayerSpec
from sliceformer_lab.attention.softmax import attend
from sliceformer_lab.batch import Padding


class MHA(Attention):
    """Multi-head softmax attention. (B, N, dim) -> (B, N, dim).

    `qk_norm` divides each head's queries and keys by their root mean square, with a learned scale, before rope;
    `gate` multiplies the mixed values by a sigmoid of the layer's input. Both need the layer's own projections.
    `times_tokens` multiplies the weights by the largest number of tokens, as Sliceformer's IMDB code does.
    A query with bias -inf for all keys attends to the real tokens as if it had no bias. A causal layer hides later
    keys.
    Raises ValueError for `qk_norm` or `gate` in a block that does the projections, and for `times_tokens` without
    spec.max_len.
    """

    query: nn.Module
    key: nn.Module

    needs_qk = True
    accepts_bias = True
    accepts_causal = True
    maps_heads = True
    order_sensitive = False
    complexity = "N^2 C"
    source = "Vaswani et al. 2017, equation (1); Dehghani et al. 2023, section 2 (qk_norm); Qiu et al. 2025 (gate)"

    def __init__(
        self, spec: LayerSpec, *, qk_norm: bool = False, gate: bool = False, times_tokens: bool = False
    ) -> None:
        super().__init__(spec)
        self.order_sensitive = spec.causal
        if (qk_norm or gate) and not spec.project:
            raise ValueError(
                "qk_norm and gate need mha's own projections, which this block replaces; set both to false"
            )
        self.query_norm = _HeadNorm(self.head_dim, eps=1e-6) if qk_norm else nn.Identity()
        self.key_norm = _HeadNorm(self.head_dim, eps=1e-6) if qk_norm else nn.Identity()
        self.gate = self._projection(spec.dim, self.width, spec.value_bias) if gate else None
        if times_tokens and spec.max_len is None:
            raise ValueError("times_tokens=true multiplies by the largest number of tokens; set max_len")
        self.factor = spec.max_len if times_tokens else None

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Values, queries and keys (B, N, H*D); queries and keys normalised, then rotated under rope."""
        q = self.rotated(self.query_norm(self.query(x)))
        return self.value(x), q, self.rotated(self.key_norm(self.key(x)))

    def mix(self, v: Tensor, q: Tensor | None = None, k: Tensor | None = None, given: BlockInputs = ALONE) -> Tensor:
        """(B, N, H*D) values, queries and keys -> (B, N, H*D). Raises ValueError without q or k."""
        v, q, k = (self.split_heads(x) for x in (v, *self.queries_and_keys(q, k)))
        causal = self.spec.causal
        mask = _key_mask(q, None if causal else given.padding, given.bias, causal)  # padding is behind every real token
        dropout = self.spec.attention_dropout if self.training else 0.0
        mixed = self.merge_heads(attend(q, k, v, mask, dropout=dropout, causal=causal and mask is None))
        return mixed if self.factor is None else mixed * self.factor

    def forward(self, x: Tensor, padding: Padding | None = None, bias: Tensor | None = None) -> Tensor:
        """(B, N, dim) -> (B, N, dim); bias (B, H, N, N) is added to the scores, -inf allowed."""
        v, q, k = self.project(x)
        mixed = self.mix(v, q, k, self.check_inputs(x, padding, bias))
        if self.gate is not None:
            mixed = mixed * self.gate(x).sigmoid()
        return self.project_out(v, mixed)


class _HeadNorm(nn.RMSNorm):
    """RMSNorm of each head separately. (B, N, H*D) -> (B, N, H*D)."""

    def forward(self, x: Tensor) -> Tensor:
        heads = torch.unflatten(x, -1, (-1, *self.normalized_shape))
        return F.rms_norm(heads, self.normalized_shape, self.weight.to(x.dtype), self.eps).flatten(-2)


def _key_mask(q: Tensor, padding: Padding | None, bias: Tensor | None, causal: bool) -> Tensor | None:
    """A bias to add to the scores (B, H, N, N), or a mask of keys (B, 1, 1, N), or None for all keys.

    Only a bias hides later keys from a causal layer here.
    """
    keys = None if padding is None else padding.mask[:, None, None, :]
    if bias is None:
        return keys
    scores = bias.to(q.dtype).clamp(min=NEVER)
    if causal:
        scores = scores.masked_fill(torch.ones_like(scores[0, 0], dtype=torch.bool).triu(1), -torch.inf)
    return scores if keys is None else scores.masked_fill(~keys, -torch.inf)
