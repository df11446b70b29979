"""Normalisations of tokens, all applied with `normalise(norm, x, padding)`."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sliceformer_lab.batch import Padding

NormKind = Literal["layernorm", "rmsnorm", "scalenorm", "batchnorm", "none"]


class ScaleNorm(nn.Module):
    """x / rms(x) times one learned scalar. (B, N, C) -> (B, N, C).

    Nguyen & Salazar 2019, section 2.2, with their g = sqrt(C) * scale.
    """

    def __init__(self, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        return self.scale * F.rms_norm(x, x.shape[-1:], eps=self.eps)


class TokenBatchNorm(nn.BatchNorm1d):
    """Batch normalisation over all real tokens of a batch. (B, N, C) -> (B, N, C), zero on padding."""

    def forward(self, x: Tensor, padding: Padding | None = None) -> Tensor:
        if padding is None:
            return super().forward(x.flatten(0, 1)).view_as(x)
        real = padding.mask[..., None]
        return torch.zeros_like(x).masked_scatter(real, super().forward(x[padding.mask]))


def build_norm(kind: NormKind, dim: int, eps: float) -> nn.Module:
    """The normalisation of `dim` channels of the option `norm`."""
    match kind:
        case "layernorm":
            return nn.LayerNorm(dim, eps)
        case "rmsnorm":
            return nn.RMSNorm(dim, eps)
        case "scalenorm":
            return ScaleNorm(eps)
        case "batchnorm":
            return TokenBatchNorm(dim, eps)
        case "none":
            return nn.Identity()


def normalise(norm: nn.Module, x: Tensor, padding: Padding | None) -> Tensor:
    """`norm(x)`, with the padding if the norm takes statistics over tokens. (B, N, C) -> (B, N, C)."""
    return norm(x, padding) if isinstance(norm, TokenBatchNorm) else norm(x)
