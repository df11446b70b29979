"""SAMSA whose heads sample tokens at random, whatever they contain: what its learned scores are compared with."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from sliceformer_lab.attention.base import LayerSpec
from sliceformer_lab.attention.samsa import SAMSA
from sliceformer_lab.batch import Padding
from sliceformer_lab.config.option_types import Count


class SAMSARandom(SAMSA):
    """SAMSA with a random score for each position and head, drawn at construction and saved in checkpoints.

    The scores of tokens and supports are small beside the noise of training, so every training step draws nearly
    uniformly among all candidates. Evaluation takes the candidates with the largest scores: a random subset, the same
    for every input of n tokens. Keys and values of the supports are learned, as in SAMSA.
    Raises ValueError without spec.max_len.
    """

    order_sensitive = True
    source = "SAMSA without its learned scores; no paper"
    deviation = ""

    def __init__(self, spec: LayerSpec, *, sample_size: Count = 128, supports: bool = True) -> None:
        super().__init__(spec, sample_size=sample_size, supports=supports)
        if self.supports is not None:
            scores = self.supports.scores.detach()
            del self.supports.scores  # a parameter, which would learn
            self.supports.register_buffer("scores", scores)

    def _build_score(self) -> nn.Module:
        return _PositionScore(self.support_std * torch.randn(self.max_len, self.spec.num_heads))

    def forward(
        self, x: Tensor, padding: Padding | None = None, bias: Tensor | None = None, scored: Tensor | None = None
    ) -> Tensor:
        """(B, N, dim) -> (B, N, dim); bias (B, H, N, N). Raises ValueError for N > max_len."""
        self.refuse_longer(x.shape[1])
        return super().forward(x, padding, bias, scored)

    def _relax_slots(self, chosen: Tensor, z: Tensor) -> Tensor:
        return chosen[:, :, : self.sample_size]  # no score learns through the rivals


class _PositionScore(nn.Module):
    """A fixed score for each position and head."""

    table: Tensor  # (max_len, H)

    def __init__(self, table: Tensor) -> None:
        super().__init__()
        self.register_buffer("table", table)

    def forward(self, x: Tensor) -> Tensor:
        """(B, N, dim) -> (B, N, H)."""
        return self.table[: x.shape[1]].expand(len(x), -1, -1)
