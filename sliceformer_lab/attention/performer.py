"""Performer: random features whose products approximate softmax weights (FAVOR+)."""

from __future__ import annotations

from math import sqrt
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from sliceformer_lab.attention.base import ALONE, BlockInputs, LayerSpec
from sliceformer_lab.attention.kernel import KernelAttention
from sliceformer_lab.batch import Padding
from sliceformer_lab.config.option_types import Count


class Performer(KernelAttention):
    """Positive random features of queries and keys, the same in all heads. (B, N, dim) -> (B, N, dim).

    `kernel=softmax` estimates softmax attention, `kernel=relu` is a different kernel. The directions are drawn from
    torch's global generator at construction, saved in checkpoints, and drawn again every `redraw_every` training steps.
    Padded keys have weight zero.
    """

    complexity = "N C M"
    source = "Choromanski et al. 2021, equations (5) to (7), section 2.4 (orthogonal features), appendix D (relu)"
    deviation = "LRA: relu kernel, on ListOps the softmax kernel with 2 features; padded keys take part"
    directions: Tensor  # (M, D)
    num_steps: Tensor  # int64, training steps since the layer was built

    def __init__(
        self,
        spec: LayerSpec,
        *,
        kernel: Literal["softmax", "relu"] = "softmax",
        num_features: Count = 256,
        redraw_every: Count | None = None,
    ) -> None:
        super().__init__(spec)
        self.kernel = kernel
        self.redraw_every = redraw_every
        self.register_buffer("directions", orthogonal_gaussian(num_features, self.head_dim))
        self.counts_steps = redraw_every is not None
        if self.counts_steps:
            self.register_buffer("num_steps", torch.zeros((), dtype=torch.int64))

    def mix(self, v: Tensor, q: Tensor | None = None, k: Tensor | None = None, given: BlockInputs = ALONE) -> Tensor:
        """(B, N, H*D) values, queries and keys -> (B, N, H*D); in training it counts a step."""
        if self.training and self.redraw_every is not None:
            self._redraw_when_due(self.redraw_every)
        return super().mix(v, q, k, given)

    def features(self, q: Tensor, k: Tensor, padding: Padding | None) -> tuple[Tensor, Tensor]:
        """(B, H, N, D) queries and keys -> their features (B, H, N, M), all positive."""
        q, k = q * self.head_dim**-0.25, k * self.head_dim**-0.25
        along_q, along_k = q @ self.directions.mT, k @ self.directions.mT
        if self.kernel == "relu":
            return F.relu(along_q) + 1e-3, F.relu(along_k) + 1e-3
        if padding is not None:
            along_k = along_k.masked_fill(~padding.mask[:, None, :, None], -torch.inf)  # before exp, which may overflow
        # a query's own maximum cancels in its weights; keys need a common one, or their weights would change
        return _positive_features(q, along_q, dims=(3,)), _positive_features(k, along_k, dims=(2, 3))

    def denominator(self, total: Tensor) -> Tensor:
        """(B, H, N, 1) -> (B, H, N, 1): features are positive, and sums may be smaller than any constant."""
        return total

    @torch.no_grad()
    def _redraw_when_due(self, every: int) -> None:
        if self.num_steps > 0 and self.num_steps % every == 0:
            # in place, because DDP keeps the buffers that it saw at construction
            self.directions.copy_(orthogonal_gaussian(*self.directions.shape))
        self.num_steps += 1


def _positive_features(x: Tensor, along: Tensor, dims: tuple[int, ...]) -> Tensor:
    """Features (B, H, N, M) of x (B, H, N, D), divided by the largest product `along` a direction over `dims`."""
    highest = along.detach().amax(dim=dims, keepdim=True)
    exponents = along - x.square().sum(dim=3, keepdim=True) / 2 - highest
    return (exponents.exp() + 1e-4) / sqrt(along.shape[3])


def orthogonal_gaussian(rows: int, width: int) -> Tensor:
    """Standard normal vectors (rows, width), each `width` of them orthogonal to one another."""
    frames, triangles = torch.linalg.qr(torch.randn(-(-rows // width), width, width))
    signs = triangles.diagonal(dim1=1, dim2=2).sign()  # without them the directions are not uniform
    lengths = torch.linalg.vector_norm(torch.randn(rows, width), dim=1, keepdim=True)
    return (frames * signs[:, None]).mT.flatten(0, 1)[:rows] * lengths
