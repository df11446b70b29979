"""Linear Transformer: linear attention with elu + 1 as its feature map."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from sliceformer_lab.attention.base import LayerSpec
from sliceformer_lab.attention.kernel import KernelAttention
from sliceformer_lab.batch import Padding


class Linear(KernelAttention):
    """Weights (elu(q_i) + 1) . (elu(k_j) + 1), normalised. (B, N, dim) -> (B, N, dim).

    Queries and keys are not scaled.
    """

    accepts_causal = True
    complexity = "N C D"
    source = "Katharopoulos et al. 2020, equations (5) and (7)"
    deviation = "LRA: padded keys take part"

    def __init__(self, spec: LayerSpec) -> None:
        super().__init__(spec)
        self.order_sensitive = spec.causal

    def features(self, q: Tensor, k: Tensor, padding: Padding | None) -> tuple[Tensor, Tensor]:
        """(B, H, N, D) queries and keys -> their features (B, H, N, D), all positive."""
        return F.elu(q) + 1, F.elu(k) + 1
