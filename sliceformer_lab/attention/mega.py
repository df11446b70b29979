"""MEGA's attention: softmax or Laplace weights with a learned bias per distance, over all tokens or inside chunks."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn

from sliceformer_lab.attention.base import LayerSpec
from sliceformer_lab.attention.blocked import attend_blocks, real_tokens, to_blocks, to_tokens
from sliceformer_lab.attention.dropout import drop
from sliceformer_lab.attention.query_key import QueryKeyAttention
from sliceformer_lab.batch import Padding
from sliceformer_lab.config.option_types import Count

_LAPLACE_MEAN, _LAPLACE_STD = math.sqrt(1 / 2), math.sqrt(1 / (4 * math.pi))  # close to squared ReLU


class Mega(QueryKeyAttention):
    """Weights f(q k^T + bias) of narrow queries and keys. (B, N, dim) -> (B, N, dim).

    `softmax` scales the scores by 1 / sqrt(z_dim / H). `laplace` divides them by the number of real keys in reach and
    applies a normal distribution function to each, so weights need not sum to 1; without any real key it gives zeros.
    The relative bias is one number per head and distance. The paper has one head, inside `block=mega`.
    Raises ValueError if num_heads does not divide z_dim, and for a relative bias without chunk_size or spec.max_len;
    `mix` raises it for more tokens than the bias has distances for.
    """

    complexity = "N^2 C; N C G in chunks of G"
    source = "Ma et al. 2023, section 3"

    def __init__(
        self,
        spec: LayerSpec,
        *,
        z_dim: Count = 64,
        function: Literal["softmax", "laplace"] = "softmax",
        chunk_size: Count | None = None,
        relative_bias: bool = True,
    ) -> None:
        super().__init__(spec, qk_width=z_dim)
        if z_dim % spec.num_heads:
            raise ValueError(f"num_heads={spec.num_heads} does not divide z_dim={z_dim}; change one of them")
        if chunk_size is not None:
            self.complexity = "N C G"
        self.laplace = function == "laplace"
        self.chunk_size = chunk_size
        self.order_sensitive = relative_bias or (chunk_size or math.inf) < (spec.max_len or math.inf)
        self.relative_bias = self._distances() if relative_bias else None

    def _distances(self) -> nn.Parameter:
        length = self.chunk_size or self.spec.max_len
        if length is None:
            raise ValueError("relative_bias=true needs the longest sequence; set max_len, chunk_size or turn it off")
        return nn.Parameter(0.02 * torch.randn(self.spec.num_heads, 2 * length - 1))

    def attend(self, v: Tensor, q: Tensor, k: Tensor, padding: Padding | None, dropout: float) -> Tensor:
        """(B, H, N, E) values, (B, H, N, D) queries and keys -> (B, H, N, E)."""
        num_tokens = v.shape[2]
        size = self.chunk_size or num_tokens
        is_full = padding is None and num_tokens % size == 0
        seen = None if is_full else to_blocks(real_tokens(v, padding), size).mT  # (B or 1, 1, K, 1, size)
        q, k, v = (to_blocks(x, size) for x in (q, k, v))  # (B, H, K, size, D or E)
        bias = (
            None if self.relative_bias is None else _build_toeplitz(self.relative_bias, size)[None, :, None].to(q.dtype)
        )
        mixed = (_attend_laplace if self.laplace else attend_blocks)(q, k, v, seen, dropout, bias)
        return to_tokens(mixed, num_tokens)


def _attend_laplace(
    q: Tensor, k: Tensor, v: Tensor, seen: Tensor | None, dropout: float, bias: Tensor | None
) -> Tensor:
    """(B, H, K, G, D) queries and keys, (B, H, K, G, E) values -> (B, H, K, G, E); a chunk of padding gives zeros."""
    scores = q @ k.mT / (k.shape[3] if seen is None else seen.sum(dim=-1, keepdim=True).clamp(min=1))
    if bias is not None:
        scores = scores + bias
    weights = torch.special.ndtr((scores - _LAPLACE_MEAN) / _LAPLACE_STD)
    if seen is not None:
        weights = weights.masked_fill(~seen, 0)
    return drop(weights, dropout) @ v


def _build_toeplitz(distances: Tensor, size: int) -> Tensor:
    """A matrix per head from one number per distance: entry [i, j] is the number of distance j - i.

    (H, 2M - 1), for the distances -(M - 1) to M - 1 -> (H, size, size). Raises ValueError for size > M.
    """
    longest = distances.shape[1] // 2 + 1
    if size > longest:
        raise ValueError(f"the relative bias was built for {longest} tokens, got {size}")
    return distances[:, longest - size : longest + size - 1].unfold(1, size, 1).flip(1)
