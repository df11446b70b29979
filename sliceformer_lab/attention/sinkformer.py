"""Sinkformer: attention weights normalised alternately by rows and by columns."""

from __future__ import annotations

from math import sqrt

import torch
from torch import Tensor

from sliceformer_lab.attention.base import LayerSpec
from sliceformer_lab.attention.dropout import drop
from sliceformer_lab.attention.precision import widen
from sliceformer_lab.attention.query_key import QueryKeyAttention
from sliceformer_lab.batch import Padding
from sliceformer_lab.config.option_types import Count


class Sinkformer(QueryKeyAttention):
    """exp(q k^T / sqrt(D)) after `n_it` normalisations, rows first, then columns ... (B, N, dim) -> (B, N, dim).

    n_it=1 is softmax; many normalisations make the weights doubly stochastic. After an odd number the rows sum to 1.
    Padded tokens take no part.
    """

    order_sensitive = False
    complexity = "N^2 (C + n_it H)"
    source = "Sander et al. 2022, section 3.1"
    deviation = "LRA: the normalisation is switched off, which leaves the Transformer"

    def __init__(self, spec: LayerSpec, *, n_it: Count = 3) -> None:
        super().__init__(spec)
        self.n_it = n_it

    def attend(self, v: Tensor, q: Tensor, k: Tensor, padding: Padding | None, dropout: float) -> Tensor:
        """(B, H, N, E) values, (B, H, N, D) queries and keys -> (B, H, N, E)."""
        logs = _normalise_weights(widen(q @ k.mT / sqrt(self.head_dim)), padding, self.n_it)
        return drop(logs.exp().to(v.dtype), dropout) @ v


def _normalise_weights(scores: Tensor, padding: Padding | None, n_it: int) -> Tensor:
    """Logarithms (B, H, N, N) of the normalised weights, -inf outside the real tokens.

    Sums run over real tokens only. The entries of padding stay finite until the end, so that no sum is empty.
    """
    real = None if padding is None else padding.mask[:, None, :, None]
    for step in range(n_it):
        dim = -1 if step % 2 == 0 else -2
        counted = scores
        if real is not None:
            counted = scores.masked_fill(~(real.mT if dim == -1 else real), -torch.inf)
        scores = scores - counted.logsumexp(dim=dim, keepdim=True)
    return scores if real is None else scores.masked_fill(~(real & real.mT), -torch.inf)
