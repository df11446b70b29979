"""RALA, rank-augmented linear attention: keys are weighed by their importance, and the output is gated."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from sliceformer_lab.attention.base import LayerSpec
from sliceformer_lab.attention.gated_kernel import GatedKernel
from sliceformer_lab.batch import Padding
from sliceformer_lab.config.option_types import OddCount


class RALA(GatedKernel):
    """Linear attention with elu + 1, its keys times n softmax(mean query . key). (B, N, dim) -> (B, N, dim).

    A depthwise convolution of the values is added and the sum is gated: the paper's remedy for the low rank of linear
    attention. Rope rotates the features in the numerator only, as published, with our frequencies.
    """

    complexity = "N C D"
    source = "RALA, arXiv 2411.07635, section 3"

    def __init__(self, spec: LayerSpec, *, kernel_size: OddCount = 5) -> None:
        super().__init__(spec, kernel_size, num_maps=spec.num_heads)

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Values, queries and keys (B, N, H*D), not rotated."""
        return self.value(x), self.query(x), self.key(x)

    def attend(self, v: Tensor, q: Tensor, k: Tensor, padding: Padding | None) -> Tensor:
        """Values (B, H, N, E), queries and keys (B, N, H*D) -> (B, H, N, E)."""
        q, k = (self.split_heads(F.elu(x) + 1) for x in (q, k))
        if padding is None:
            scores = q.mean(dim=2, keepdim=True) @ k.mT * q.shape[-1] ** -0.5  # (B, H, 1, N)
        else:
            real = padding.mask[:, None, :, None]
            mean = q.masked_fill(~real, 0).sum(dim=2, keepdim=True) / padding.lengths[:, None, None, None]
            scores = (mean @ k.mT * q.shape[-1] ** -0.5).masked_fill(~real.mT, -torch.inf)
        k = k * scores.softmax(dim=-1).mT  # times n in the paper, which both sums divide by
        total = q @ k.sum(dim=2)[..., None]
        if self.spec.rope:
            q, k = (self.split_heads(self.rotated(self.merge_heads(x))) for x in (q, k))
        return q @ (k.mT @ v) / (total + 1e-6)
