"""ESPFormer: each channel of queries and keys sorts the tokens softly; the plans that match the ranks are averaged."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from sliceformer_lab.attention.base import LayerSpec
from sliceformer_lab.attention.precision import widen
from sliceformer_lab.attention.query_key import QueryKeyAttention
from sliceformer_lab.batch import Padding
from sliceformer_lab.config.option_types import NonNegative, Positive

MIN_SCORE = -30.0  # of scores whose best is 0: less changes no sum, but makes subnormals, which CPUs are slow with


class ESPFormer(QueryKeyAttention):
    """Weights sum_l w_l P(q_l)^T P(k_l), with a soft permutation P for each channel l. (B, N, dim) -> (B, N, dim).

    P sorts the real tokens by SoftSort at temperature `tau`. Channels whose plan moves tokens over long distances get
    less weight, w = softmax(-temperature cost); 0 weighs all equally and saves the products of N x N matrices. Rows sum
    to 1 exactly only as tau goes to 0.
    """

    order_sensitive = False
    complexity = "N^3 C; with temperature=0 N^2 C D"
    source = "ESPFormer, arXiv 2502.07962, sections 3 and 4"
    deviation = "ESPFormer: one token fails"

    def __init__(self, spec: LayerSpec, *, tau: Positive = 1e-3, temperature: NonNegative = 10.0) -> None:
        super().__init__(spec)
        self.order_sensitive = spec.rope
        self.tau, self.temperature = tau, temperature

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Values, queries and keys (B, N, H*D). Ranks follow from queries and keys, so autocast must not round them."""
        with torch.autocast(x.device.type, enabled=False):
            exact = x.to(next(self.query.parameters(), x).dtype)
            q, k = self.query(exact), self.key(exact)
        return self.value(x), self.rotated(q), self.rotated(k)

    def attend(self, v: Tensor, q: Tensor, k: Tensor, padding: Padding | None, dropout: float) -> Tensor:
        """(B, H, N, E) values, (B, H, N, D) queries and keys -> (B, H, N, E)."""
        del dropout  # published without
        with torch.autocast(v.device.type, enabled=False):  # which would round the costs
            return self._attend(v, q, k, padding)

    def _attend(self, v: Tensor, q: Tensor, k: Tensor, padding: Padding | None) -> Tensor:
        q, k = (widen(x) * x.shape[-1] ** -0.5 for x in (q, k))
        real = None if padding is None else padding.mask[:, None]
        if padding is not None:
            q, k = (x.masked_fill(~padding.mask[:, None, :, None], 0) for x in (q, k))
        distance = None
        if self.temperature:
            distance = torch.cdist(q, k, compute_mode="donot_use_mm_for_euclid_dist")  # (B, H, N, N)
        slices = [
            self._mix_channel(v, q_l, k_l, distance, real) for q_l, k_l in zip(q.unbind(-1), k.unbind(-1), strict=True)
        ]
        mixed, costs = (torch.stack(parts, dim=2) for parts in zip(*slices, strict=True))  # (B, H, D, N, E), (B, H, D)
        scores = -self.temperature * (costs - costs.amin(dim=-1, keepdim=True).detach())
        weights = scores.clamp_min(MIN_SCORE).softmax(dim=-1).to(v.dtype)
        return torch.einsum("bhd,bhdne->bhne", weights, mixed)

    def _mix_channel(
        self, v: Tensor, q: Tensor, k: Tensor, distance: Tensor | None, real: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """One channel's mix (B, H, N, E) and the cost of its plan (B, H); its N x N matrices are not kept."""
        if not torch.is_grad_enabled():
            return self._move_values(v, q, k, distance, real)
        moved: tuple[Tensor, Tensor] = checkpoint(
            self._move_values, v, q, k, distance, real, use_reentrant=False, preserve_rng_state=False
        )
        return moved

    def _move_values(
        self, v: Tensor, q: Tensor, k: Tensor, distance: Tensor | None, real: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        by_query, by_key = (self._soft_sort(x, real) for x in (q, k))
        mixed = by_query.mT.to(v.dtype) @ (by_key.to(v.dtype) @ v)
        if distance is None:
            return mixed, torch.zeros_like(q[..., 0])
        return mixed, ((by_query @ distance) * by_key).sum(dim=(-2, -1))

    def _soft_sort(self, x: Tensor, real: Tensor | None) -> Tensor:
        """Row r weighs the tokens by their distance to the r-th largest. (B, H, N) -> (B, H, N, N)."""
        x = x * self.tau**-0.5
        if real is None:
            return self._score_ranks(x, x.sort(dim=-1, descending=True).values).softmax(dim=-1)
        ranked = x.masked_fill(~real, -torch.inf).sort(dim=-1, descending=True).values.masked_fill(~real, 0)
        scores = self._score_ranks(x, ranked).masked_fill(~real[..., None, :], -torch.inf)
        return scores.softmax(dim=-1) * real[..., None]

    @staticmethod
    def _score_ranks(x: Tensor, ranked: Tensor) -> Tensor:
        """-(x_j - ranked_r)^2, at least MIN_SCORE. (B, H, N) and (B, H, N) -> (B, H, N, N)."""
        return -(x[..., None, :] - ranked[..., None]).square().clamp_max(-MIN_SCORE)
