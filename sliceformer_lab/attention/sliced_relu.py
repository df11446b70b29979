"""Sliced ReLU attention: one number per token and head, sorted, so that pairwise weights need no pairs."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sliceformer_lab.attention.base import LayerSpec
from sliceformer_lab.attention.precision import wide_type
from sliceformer_lab.attention.query_key import QueryKeyAttention
from sliceformer_lab.batch import Padding

FLOAT64_TOKENS = 16_384  # tokens from which sums are kept in float64


class SlicedReLU(QueryKeyAttention):
    """Weights from the difference of two learned numbers, s_i of the query and t_j of the key.

    `relu`: sum 2 relu(s_i - t_j) (v_j - mean v) / sum |s_i - t_j|, with s and t standardised over the real tokens.
    `bump`: the mean of max(0, 1 - |s_i - t_j| / b) v_j, with a learned b in each head.
    Keys are sorted once; a query finds its place by bisection and reads sums over the keys before it.
    `scores=published` computes the numbers from parts of several tokens, as the published code does; `mix` then
    raises ValueError for padding, which it would read.
    """

    complexity = "N log N H + N C"
    source = "Sliced ReLU attention, arXiv 2512.11411"
    bandwidth: nn.Parameter
    deviation = "Sliced ReLU: scores mix heads and tokens, and results depend on the amount of padding"

    def __init__(
        self,
        spec: LayerSpec,
        *,
        variant: Literal["relu", "bump"] = "relu",
        scores: Literal["per_token", "published"] = "per_token",
    ) -> None:
        super().__init__(spec)
        self.accepts_padding = scores != "published"  # whose scores mix tokens
        self.order_sensitive = not self.accepts_padding
        heads, width = spec.num_heads, self.qk_width
        self.variant = variant
        self.score: nn.Module = nn.Linear(width, heads, bias=False)
        if variant == "relu":
            self.score = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, heads))
        else:
            self.bandwidth = nn.Parameter(torch.zeros(heads))  # softplus of it is b

    def attend(self, v: Tensor, q: Tensor, k: Tensor, padding: Padding | None, dropout: float) -> Tensor:
        """(B, H, N, E) values, (B, H, N, D) queries and keys -> (B, H, N, E)."""
        del dropout  # no weight is ever computed
        if padding is not None and not self.accepts_padding:
            raise ValueError("scores=published mixes tokens with padding; use scores=per_token for many lengths")
        kind = torch.float64 if v.shape[2] > FLOAT64_TOKENS else wide_type(v)
        s, t = (self.score(self._inputs(x)).mT.to(kind) for x in (q, k))  # (B, H, N)
        real = torch.ones_like(s[:, :1], dtype=torch.bool) if padding is None else padding.mask[:, None]
        count = real.sum(dim=-1, keepdim=True)
        values = v.to(kind).where(real[..., None], 0)
        mixed = (
            self._relu(values, s, t, real, count) if self.variant == "relu" else self._bump(values, s, t, real, count)
        )
        return mixed.to(v.dtype)

    def _inputs(self, x: Tensor) -> Tensor:
        """(B, H, N, D) -> (B, N, H*D); the published code forgets to exchange heads and tokens."""
        return x.flatten(1).view(len(x), x.shape[2], -1) if not self.accepts_padding else self.merge_heads(x)

    def _relu(self, v: Tensor, s: Tensor, t: Tensor, real: Tensor, count: Tensor) -> Tensor:
        (s, s_var), (t, t_var) = (_centre(x, real, count) for x in (s, t))
        spread = ((s_var + t_var) / 2 + 1e-6).sqrt()
        s, t = s / spread, (t / spread).where(real, 0)
        v = (v - v.sum(dim=2, keepdim=True) / count[..., None]).where(real[..., None], 0)
        keys = _SortedKeys(t, real)
        before = keys.place(s)
        numerator = s[..., None] * keys.sums(v, before) - keys.sums(t[..., None] * v, before)
        number = torch.where(real, 1.0, 0.0).to(s.dtype).expand_as(t)[..., None]
        m, total = keys.sums(number, before)[..., 0], keys.sums(t[..., None], before)[..., 0]
        distances = 2 * (s * m - total) - (s * count - t.sum(dim=-1, keepdim=True))
        return 2 * numerator / distances.clamp(min=1e-4)[..., None]

    def _bump(self, v: Tensor, s: Tensor, t: Tensor, real: Tensor, count: Tensor) -> Tensor:
        b = (F.softplus(self.bandwidth) + 1e-4).to(s.dtype)[:, None]
        t = t.where(real, 0)
        keys = _SortedKeys(t, real)
        low, middle, high = keys.place(s - b), keys.place(s), keys.place(s + b)
        weighted = t[..., None] * v
        left, right = (keys.sums(v, end) - keys.sums(v, start) for start, end in ((low, middle), (middle, high)))
        t_left, t_right = (
            keys.sums(weighted, end) - keys.sums(weighted, start) for start, end in ((low, middle), (middle, high))
        )
        s, b = s[..., None], b[..., None]
        return ((1 - s / b) * left + t_left / b + (1 + s / b) * right - t_right / b) / count[..., None]


class _SortedKeys:
    """The keys' numbers t (B, H, N) in ascending order, padding last."""

    def __init__(self, t: Tensor, real: Tensor) -> None:
        self._sorted, self._order = t.detach().where(real, torch.inf).contiguous().sort(dim=-1, stable=True)

    def place(self, s: Tensor) -> Tensor:
        """The number of keys below each s (B, H, N)."""
        return torch.searchsorted(self._sorted, s.detach().contiguous())

    def sums(self, x: Tensor, places: Tensor) -> Tensor:
        """The sums of x (B, H, N, E) over the first keys, as many as `places` (B, H, N) says."""
        in_order = x.gather(2, self._order[..., None].expand_as(x))
        running = F.pad(in_order.cumsum(dim=2), (0, 0, 1, 0))
        return running.gather(2, places[..., None].expand(*places.shape, x.shape[-1]))


def _centre(x: Tensor, real: Tensor, count: Tensor) -> tuple[Tensor, Tensor]:
    """x (B, H, N) minus its mean over the real tokens, and its variance (B, H, 1)."""
    x = x - x.where(real, 0).sum(dim=-1, keepdim=True) / count
    return x, x.where(real, 0).square().sum(dim=-1, keepdim=True) / count
