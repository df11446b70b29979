"""gMLP: half of the channels, mixed by one matrix over the positions, gate the other half."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from sliceformer_lab.attention.base import ALONE, Attention, BlockInputs, LayerSpec


class GMLP(Attention):
    """u (S norm(v) + s), with u and v gelu of linear maps and S a matrix over the positions. (B, N, dim) -> the same.

    n tokens use the first n rows and columns of S. At the start the gate is nearly 1. Raises ValueError without
    spec.max_len.
    """

    mixable = False  # u is computed from the layer's input
    complexity = "N^2 C"
    source = "gMLP, arXiv 2105.08050, section 2"

    def __init__(self, spec: LayerSpec) -> None:
        super().__init__(spec)
        self.gated = self._projection(spec.dim, self.width, spec.value_bias)
        self.norm = nn.LayerNorm(self.width)
        self.spatial = nn.Linear(self.max_len, self.max_len)
        nn.init.uniform_(self.spatial.weight, -1e-3 / self.max_len, 1e-3 / self.max_len)
        nn.init.ones_(self.spatial.bias)

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, None]:
        """The channels v that are mixed and the channels u that they gate (B, N, C)."""
        return F.gelu(self.value(x)), F.gelu(self.gated(x)), None

    def mix(self, v: Tensor, q: Tensor | None = None, k: Tensor | None = None, given: BlockInputs = ALONE) -> Tensor:
        """Channels to mix (B, N, C), with the gated ones of `project` as q -> (B, N, C).

        Raises ValueError without them, and for N > max_len.
        """
        if q is None:
            raise ValueError("gmlp gates channels from the layer's input: mix(v, gated)")
        n = v.shape[1]
        self.refuse_longer(n)
        v = self.norm(v)
        v = given.zero_padding(v)
        return q * F.linear(v.mT, self.spatial.weight[:n, :n], self.spatial.bias[:n]).mT
