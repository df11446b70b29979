"""The embedding of features of a whole sample, which join the pooled vector of its tokens."""

from __future__ import annotations

import torch
from torch import Tensor, nn

MAX_DEVIATIONS = 4.0  # from the mean, to which rare values of a feature are cut
MIN_STD = 1e-6  # of a feature that varies


class WholeFeatures(nn.Module):
    """Standardised features of a whole sample, a linear map and a GELU. (B, F) -> (B, dim).

    `standardise` takes mean and deviation from the training samples; checkpoints hold them. A feature that does not
    vary counts as zero.
    """

    mean: Tensor  # (F,)
    scale: Tensor  # (F,) 1 / deviation, 0 for a feature that does not vary

    def __init__(self, channels: int, dim: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(channels))
        self.register_buffer("scale", torch.ones(channels))
        self.layers = nn.Sequential(nn.Dropout(dropout), nn.Linear(channels, dim), nn.GELU(), nn.Dropout(dropout))

    def standardise(self, features: Tensor) -> None:
        """Takes mean and deviation from the features (n, F) of the training samples."""
        self.mean.copy_(features.mean(dim=0))
        std = features.std(dim=0, correction=0)
        self.scale.copy_(torch.where(std > MIN_STD, 1 / std, 0.0))

    def forward(self, features: Tensor | None) -> Tensor:
        """Features (B, F) -> (B, dim). Raises ValueError for a batch without features."""
        if features is None:
            raise ValueError("the model reads features of whole samples, which the batch has not")
        found: Tensor = self.layers(((features - self.mean) * self.scale).clamp(-MAX_DEVIATIONS, MAX_DEVIATIONS))
        return found
