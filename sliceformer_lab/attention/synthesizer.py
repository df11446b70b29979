"""Synthesizer: attention scores that are learned, or computed from each token alone, without token pairs."""

from __future__ import annotations

from math import sqrt
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sliceformer_lab.attention.base import ALONE, Attention, BlockInputs, LayerSpec
from sliceformer_lab.attention.dropout import drop
from sliceformer_lab.batch import Padding
from sliceformer_lab.config.option_types import Count


class Synthesizer(Attention):
    """Softmax over synthetic scores, with `mix_dot_product` added to q k^T / sqrt(D). (B, N, dim) -> (B, N, dim).

    Scores of a head are a learned matrix (random), a product of two of inner width `rank` (factorized_random), or a
    two-layer network of the input with `rank` hidden units (dense). A sample of N tokens uses the first N positions.
    Raises ValueError without spec.max_len, for dense in a block that does the projections, and for rope without
    mix_dot_product; `mix` raises it for N > max_len.
    """

    needs_qk = True
    maps_heads = True
    complexity = "N^2 C"
    source = "Tay et al. 2020 (Synthesizer), equations (2) to (6)"
    deviation = "LRA: random scores added to q k^T whatever the configuration asks for"

    def __init__(
        self,
        spec: LayerSpec,
        *,
        mode: Literal["random", "factorized_random", "dense"] = "random",
        mix_dot_product: bool = True,
        rank: Count = 32,
    ) -> None:
        super().__init__(spec)
        if mode == "dense" and not spec.project:
            raise ValueError("mode=dense needs the layer's input, which this block does not pass on; set another mode")
        if spec.rope and not mix_dot_product:
            raise ValueError("rope rotates queries and keys, but mix_dot_product=false has none; set it to true")
        if not mix_dot_product:
            self.query = self.key = None
        self.mode = mode
        self._add_parameters(spec.num_heads, self.max_len, rank)

    def _add_parameters(self, heads: int, max_len: int, rank: int) -> None:
        """Creates parameters whose initial scores have a standard deviation near 1."""
        if self.mode == "random":
            self.scores = nn.Parameter(torch.randn(heads, max_len, max_len))
        elif self.mode == "factorized_random":
            self.left = nn.Parameter(torch.randn(heads, max_len, rank) * rank**-0.25)
            self.right = nn.Parameter(torch.randn(heads, rank, max_len) * rank**-0.25)
        else:
            self.hidden = nn.Linear(self.spec.dim, heads * rank)
            self.position_keys = nn.Parameter(torch.randn(heads, max_len, rank) * rank**-0.5)
            self.position_bias = nn.Parameter(torch.zeros(heads, max_len))

    def project(self, x: Tensor) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Values, queries and keys (B, N, H*D); in dense mode H*rank hidden units follow the queries."""
        v, q, k = super().project(x)
        if self.mode == "dense":
            hidden = F.relu(self.hidden(x))
            q = hidden if q is None else torch.cat([q, hidden], dim=-1)
        return v, q, k

    def mix(self, v: Tensor, q: Tensor | None = None, k: Tensor | None = None, given: BlockInputs = ALONE) -> Tensor:
        """(B, N, H*D) values, queries and keys as `project` returns them -> (B, N, H*D)."""
        weights = drop(self._weights(v, q, k, given.padding), self.spec.attention_dropout, self.training)
        return self.merge_heads(weights @ self.split_heads(v))

    def _weights(self, v: Tensor, q: Tensor | None, k: Tensor | None, padding: Padding | None) -> Tensor:
        """The weights (B or 1, H, N, N), zero on padding."""
        self.refuse_longer(v.shape[1])
        scores = self._score_pairs(v.shape[1], q)
        if self.query is not None:
            q, k = self.queries_and_keys(q, k)
            queries = self.split_heads(q[..., : self.width])
            scores = scores + queries @ self.split_heads(k).mT / sqrt(self.head_dim)
        if padding is not None:
            scores = scores.masked_fill(~padding.mask[:, None, None, :], -torch.inf)
        return scores.softmax(dim=-1)

    def _score_pairs(self, num_tokens: int, q: Tensor | None) -> Tensor:
        """Synthetic scores (B or 1, H, N, N)."""
        if self.mode == "random":
            return self.scores[None, :, :num_tokens, :num_tokens]
        if self.mode == "factorized_random":
            return (self.left[:, :num_tokens] @ self.right[:, :, :num_tokens])[None]
        if q is None:
            raise ValueError("synthesizer in dense mode mixes with hidden units: mix(v, q)")
        hidden = self.split_heads(q[..., -self.hidden.out_features :])  # (B, H, N, rank)
        return hidden @ self.position_keys[:, :num_tokens].mT + self.position_bias[:, None, :num_tokens]
