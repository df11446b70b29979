"""The score of SAMSA's published code: one number for each token and head."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class ResidualScore(nn.Module):
    """A linear map of the tokens plus a normalised MLP of them. (B, N, dim) -> (B, N, num_heads).

    SAMSA's paper writes an MLP; this is the net of its published code.
    """

    def __init__(self, dim: int, num_heads: int) -> None:
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(dim, dim), nn.GELU(), nn.Linear(dim, dim))
        self.norm = _RootNorm(dim)
        self.out = nn.Linear(dim, num_heads)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.out(x + self.norm(self.mlp(x)))
        return scores


class _RootNorm(nn.Module):
    """x / (rms(x) + 1e-8), times a learned scale per channel. torch's RMSNorm adds its eps to the mean square."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(dim))

    def forward(self, x: Tensor) -> Tensor:
        norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True)  # its gradient at 0 is 0, that of a root is infinite
        return self.scale * x / (norm / x.shape[-1] ** 0.5 + 1e-8)
