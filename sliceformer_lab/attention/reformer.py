"""Reformer: attention within chunks of tokens that are sorted by a hash."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from sliceformer_lab.attention.base import LayerSpec
from sliceformer_lab.attention.blocked import to_blocks, to_tokens
from sliceformer_lab.attention.dropout import drop
from sliceformer_lab.attention.precision import widen
from sliceformer_lab.attention.query_key import QueryKeyAttention
from sliceformer_lab.batch import Padding
from sliceformer_lab.config.option_types import Count, EvenCount

_ITSELF = -1e5  # score of a token with itself, which it attends to only if it is alone


class Reformer(QueryKeyAttention):
    """Tokens sorted by random hash, then softmax over their chunk and the one before. (B, N, dim) -> (B, N, dim).

    Queries and keys share one projection, and keys are scaled to length 1. `num_hashes` rounds, each with a rotation
    drawn at construction, are weighted by their log-sum-exp. `wrap` lets the first chunk attend to the last chunk of
    spec.max_len tokens; `same_bucket_only` masks keys of other buckets. Padding is sorted last. The order of a sort has
    no gradient. Raises ValueError for `wrap` without spec.max_len.
    """

    mixable = False  # keys of a block would not be used
    complexity = "rounds (N log N + N C chunk)"
    source = "Kitaev et al. 2020, section 2"
    deviation = (
        "LRA: always 10 chunks, so quadratic; scores times sqrt(D) instead of divided by it; keys of any length; "
        "a token weighs itself like any other; padding is not masked; no output projection"
    )
    rotations: Tensor  # (R, D, buckets / 2)

    def __init__(
        self,
        spec: LayerSpec,
        *,
        num_hashes: Count = 1,
        num_buckets: EvenCount = 10,
        chunk_length: Count = 64,
        wrap: bool = False,
        same_bucket_only: bool = False,
    ) -> None:
        super().__init__(spec)
        if wrap and spec.max_len is None:
            raise ValueError("wrap=true needs the last chunk of the longest sequence; set max_len or wrap=false")
        self.num_buckets, self.chunk_length = num_buckets, chunk_length
        self.wrap, self.same_bucket_only = wrap, same_bucket_only
        self.order_sensitive = spec.max_len is None or spec.max_len > chunk_length
        del self.key  # queries are keys
        self.register_buffer("rotations", torch.randn(num_hashes, self.head_dim, num_buckets // 2))

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Values (B, N, H*D), then twice the same queries and keys (B, N, H*D), rotated under rope."""
        shared = self.rotated(self.query(x))
        return self.value(x), shared, shared

    def attend(self, v: Tensor, q: Tensor, k: Tensor, padding: Padding | None, dropout: float) -> Tensor:
        """(B, H, N, E) values, (B, H, N, D) queries -> (B, H, N, E)."""
        del k
        buckets = self.buckets(q, padding)
        order = buckets.argsort(dim=-1, stable=True)
        size = self.chunk_length
        queries, keys, values = (to_blocks(_sort_tokens(x, order), size) for x in (q, F.normalize(q, dim=-1), v))
        sorted_buckets = to_blocks(buckets.gather(-1, order).flatten(1, 2)[..., None] + 1, size)  # 0 after the last
        mixed, log_sum = self._attend_chunks(queries, keys, values, sorted_buckets, dropout)
        place = order.argsort(dim=-1).flatten(1, 2)[..., None]  # of each token in its round's sort
        mixed, log_sum = (
            torch.unflatten(to_tokens(x, q.shape[2]).take_along_dim(place, dim=2), 1, order.shape[1:3])
            for x in (mixed, log_sum)
        )
        return (log_sum.softmax(dim=2).to(mixed.dtype) * mixed).sum(dim=2)

    def buckets(self, q: Tensor, padding: Padding | None) -> Tensor:
        """The bucket of each query in each round, `num_buckets` for padding: (B, H, N, D) -> (B, H, R, N)."""
        rotated = torch.einsum("bhnd,rde->bhrne", q.detach(), self.rotations.to(q.dtype))
        buckets = torch.cat([rotated, -rotated], dim=-1).argmax(dim=-1)
        return buckets if padding is None else buckets.masked_fill(~padding.mask[:, None, None], self.num_buckets)

    def _attend_chunks(
        self,
        q: Tensor,  # (B, H*R, K, m, D)
        k: Tensor,
        v: Tensor,
        buckets: Tensor,  # (B, H*R, K, m, 1), 0 where there is no token
        dropout: float,
    ) -> tuple[Tensor, Tensor]:
        """Each chunk attends to the one before and itself. -> (B, H*R, K, m, E), log-sum-exp of the scores (..., 1)."""
        scores = widen(q @ _with_previous(k).mT) / self.head_dim**0.5
        itself = torch.eye(self.chunk_length, dtype=torch.bool, device=q.device)
        scores = scores.masked_fill(F.pad(itself, (self.chunk_length, 0)), _ITSELF)
        scores = scores.masked_fill(~self._mask_keys(buckets), torch.finfo(scores.dtype).min)
        weights = drop(scores.softmax(dim=-1).to(v.dtype), dropout)
        return weights @ _with_previous(v), scores.logsumexp(dim=-1, keepdim=True)

    def _mask_keys(self, buckets: Tensor) -> Tensor:
        """The mask of the keys of a query, in the chunk before and its own. -> (B, H*R, K, m or 1, 2m)."""
        num_chunks = buckets.shape[2]
        keys = _with_previous(buckets).mT
        seen = (keys > 0) & (keys <= self.num_buckets)
        longest = -(-(self.spec.max_len or 0) // self.chunk_length)
        if not (self.wrap and 1 < num_chunks == longest):
            chunk = torch.arange(num_chunks, device=buckets.device)[:, None, None]
            slot = torch.arange(2 * self.chunk_length, device=buckets.device)
            seen = seen & ((chunk > 0) | (slot >= self.chunk_length))
        return seen & (keys == buckets) if self.same_bucket_only else seen


def _sort_tokens(x: Tensor, order: Tensor) -> Tensor:
    """Tokens (B, H, N, D) in the order (B, H, R, N) of every round. -> (B, H*R, N, D)."""
    return x[:, :, None].take_along_dim(order[..., None], dim=3).flatten(1, 2)


def _with_previous(chunks: Tensor) -> Tensor:
    """The chunk before each chunk and the chunk, the last before the first: (B, H, K, m, D) -> (B, H, K, 2m, D)."""
    return torch.cat([chunks.roll(1, dims=2), chunks], dim=3)
