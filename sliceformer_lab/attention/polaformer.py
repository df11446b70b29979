"""PolaFormer: linear attention whose queries and keys keep their signs, and a gate."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sliceformer_lab.attention.base import LayerSpec
from sliceformer_lab.attention.gated_kernel import GatedKernel
from sliceformer_lab.batch import Padding
from sliceformer_lab.config.option_types import OddCount, Positive


class PolaFormer(GatedKernel):
    """Linear attention with the positive and negative parts of queries and keys. (B, N, dim) -> (B, N, dim).

    The first half of a head's channels is averaged with weights from parts of the same sign, the second half from parts
    of opposite signs. Parts are raised to a learned power between 1 and 1 + `alpha`, which makes the weights sharper.
    Keys have a learned position. A depthwise convolution, the same for all heads, is added, and the sum is gated.
    Raises ValueError without spec.max_len and for an odd width of the heads.
    """

    complexity = "N C D"
    source = "PolaFormer, arXiv 2501.15061, section 4"
    deviation = "PolaFormer: square images without CLS only"

    def __init__(self, spec: LayerSpec, *, alpha: Positive = 4.0, kernel_size: OddCount = 5) -> None:
        super().__init__(spec, kernel_size, num_maps=2 * spec.num_heads, copies=spec.num_heads)
        if self.head_dim % 2:
            raise ValueError(f"polaformer halves the heads, so their width must be even, got {self.head_dim}")
        self.alpha = alpha
        self.positions = nn.Parameter(torch.zeros(self.max_len, self.width))
        self.scale = nn.Parameter(torch.zeros(self.width))  # softplus of it divides queries and keys
        self.power = nn.Parameter(torch.zeros(spec.num_heads, self.head_dim))  # 1 + alpha sigmoid of it is the power

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Values, queries and keys with their positions (B, N, H*D). Raises ValueError for N > max_len."""
        num_tokens = x.shape[1]
        self.refuse_longer(num_tokens)
        return self.value(x), self.rotated(self.query(x)), self.rotated(self.key(x) + self.positions[:num_tokens])

    def attend(self, v: Tensor, q: Tensor, k: Tensor, padding: Padding | None) -> Tensor:
        """Values (B, 2H, N, E), queries and keys (B, N, H*D) -> (B, 2H, N, E): same, then opposite signs of a head."""
        count: Tensor | int = v.shape[2]
        if padding is not None:  # queries too: the powers of garbage overflow
            count = padding.lengths[:, None, None, None]
            q, k = (x.masked_fill(~padding.mask[:, :, None], 0) for x in (q, k))
        power = 1 + self.alpha * self.power.sigmoid()[:, None]
        scale = F.softplus(self.scale)
        (q_plus, q_minus), (k_plus, k_minus) = (
            (heads.relu() ** power, (-heads).relu() ** power) for heads in map(self.split_heads, (q / scale, k / scale))
        )
        signs = [torch.cat([q_plus, q_minus], dim=-1), torch.cat([q_minus, q_plus], dim=-1)]
        q = torch.stack(signs, dim=2).flatten(1, 2)  # (B, 2H, N, 2D)
        k = torch.cat([k_plus, k_minus], dim=-1).repeat_interleave(2, dim=1) / count
        return q @ (k.mT @ v) / (q @ k.sum(dim=2)[..., None] + 1e-6)
