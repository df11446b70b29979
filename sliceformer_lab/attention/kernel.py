"""Linear attention: weights that factor into positive features of queries and keys."""

from __future__ import annotations

from abc import abstractmethod

import torch
import torch.nn.functional as F
from torch import Tensor

from sliceformer_lab.attention.decayed_sum import decayed_sum
from sliceformer_lab.attention.query_key import QueryKeyAttention
from sliceformer_lab.batch import Padding


class KernelAttention(QueryKeyAttention):
    """Weights phi(q_i) . phi(k_j), divided by their sum over real tokens j. (B, N, dim) -> (B, N, dim).

    The cost is linear in N, because phi(k)^T v is summed over the tokens first (Katharopoulos et al. 2020, equation 5).
    The weights are never computed, so attention dropout has no effect. A causal layer sums over the tokens up to
    each; a subclass accepts that if its features read no later token. Sums over many tokens pass the largest float16,
    so they are kept as means, or in float32 where each token has a sum of its own.
    """

    order_sensitive = False

    @abstractmethod
    def features(self, q: Tensor, k: Tensor, padding: Padding | None) -> tuple[Tensor, Tensor]:
        """Queries and keys (B, H, N, D) -> non-negative phi(q), phi(k) (B, H, N, M), finite for finite keys."""

    def denominator(self, total: Tensor) -> Tensor:
        """The sums of weights, or their means over the keys (B, H, N, 1), bounded away from zero."""
        return total + 1e-6

    def attend(self, v: Tensor, q: Tensor, k: Tensor, padding: Padding | None, dropout: float) -> Tensor:
        """(B, H, N, E) values, (B, H, N, D) queries and keys -> (B, H, N, E)."""
        del dropout
        phi_q, phi_k = self.features(q, k, padding)
        if padding is not None:
            phi_k = phi_k.masked_fill(~padding.mask[:, None, :, None], 0)
        if self.spec.causal:
            if v.dtype != torch.float16:
                return self._mix_causal(v, phi_q, phi_k)
            with torch.autocast(v.device.type, enabled=False):
                return self._mix_causal(*(x.float() for x in (v, phi_q, phi_k))).to(v.dtype)
        share: Tensor | float = v.shape[2] ** -0.5  # once for keys and once for sums of them
        if padding is not None:
            share = padding.lengths[:, None, None, None].rsqrt().to(v.dtype)
        phi_k = phi_k * share
        mixed = phi_q @ (phi_k.mT @ (v * share))
        return mixed / self.denominator(phi_q @ (phi_k.sum(dim=2)[..., None] * share))

    def _mix_causal(self, v: Tensor, phi_q: Tensor, phi_k: Tensor) -> Tensor:
        v = F.pad(v, (0, 1), value=1)  # the last channel sums the weights
        sums = decayed_sum(phi_q, phi_k, v, torch.zeros_like(v[:1, ..., 0]))
        return sums[..., :-1] / self.denominator(sums[..., -1:])
