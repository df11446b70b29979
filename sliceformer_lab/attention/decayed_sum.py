"""Sums over the tokens before each token, with weights that decay on the way: linear in the number of tokens."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from sliceformer_lab.attention.precision import widen

CHUNK_TOKENS = 32  # tokens, or chunks, whose weights are computed for all pairs
MIN_LOG_WEIGHT = -60.0  # log of a weight: 0 beyond, since its products would be subnormal, which CPUs are slow with


def decayed_sum(q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, chunk: int = CHUNK_TOKENS) -> Tensor:
    """y_i = sum_{j <= i} (q_i . k_j) exp(log_decay_{j+1} + ... + log_decay_i) v_j. -> (B, H, N, E).

    Queries and keys (B, H or 1, N, D), values (B, H, N, E), log_decay (B or 1, H, N), never positive. Pairs inside a
    chunk are computed directly; the state D x E of each head carries everything before it.
    """
    num_tokens = v.shape[2]
    size = min(chunk, num_tokens)
    q, k, v = (_in_groups(x, size) for x in (q, k, v))  # (B, H, K, G, D or E)
    since_start = _in_groups(widen(log_decay), size, dim=2).cumsum(dim=-1)  # (B, H, K, G), own token included
    inside = ((q @ k.mT) * _pair_decay(since_start).to(q.dtype)) @ v
    to_end = _exp_or_zero(since_start[..., -1:] - since_start).to(v.dtype)
    head = "h" if k.shape[1] > 1 else "x"  # x: shared by the heads, and not copied for each
    totals = torch.einsum(f"b{head}kgd,bhkge->bhkde", k, v * to_end[..., None])  # what each chunk adds to the state
    in_front = F.pad(totals.flatten(3), (0, 0, 1, 0)), F.pad(since_start[..., -1], (1, 0))
    before = torch.unflatten(
        _sum_decayed(*in_front, chunk)[:, :, :-1], -1, totals.shape[3:]
    )  # the state, (B, H, K, D, E)
    y = inside + _exp_or_zero(since_start).to(q.dtype)[..., None] * torch.einsum(f"b{head}kgd,bhkde->bhkge", q, before)
    return y.flatten(2, 3)[:, :, :num_tokens]


def _sum_decayed(x: Tensor, log_decay: Tensor, chunk: int) -> Tensor:
    """h_k = exp(log_decay_k) h_(k-1) + x_k for x (B, H, K, E) and log_decay (B or 1, H, K). -> (B, H, K, E).

    Groups of at most `chunk` are summed by a matrix; what each group adds is summed in the same way.
    """
    number = x.shape[2]
    size = min(chunk, number)
    since_start = _in_groups(log_decay, size, dim=2).cumsum(dim=-1)
    sums = _pair_decay(since_start).to(x.dtype) @ _in_groups(x, size)  # (B, H, K / G, G, E)
    if number > size:
        ends = _sum_decayed(sums[..., -1, :], since_start[..., -1], chunk)
        before = F.pad(ends[:, :, :-1], (0, 0, 1, 0))
        sums = sums + _exp_or_zero(since_start).to(x.dtype)[..., None] * before[..., None, :]
    return sums.flatten(2, 3)[:, :, :number]


def _pair_decay(since_start: Tensor) -> Tensor:
    """exp(since_start_i - since_start_j) for j <= i, else 0. (..., G) -> (..., G, G)."""
    difference = since_start[..., :, None] - since_start[..., None, :]
    later = torch.ones(difference.shape[-2:], dtype=torch.bool, device=difference.device).triu(1)
    return _exp_or_zero(difference.masked_fill(later, -torch.inf))  # before exp, which would overflow


def _exp_or_zero(log: Tensor) -> Tensor:
    """exp, and 0 below exp(MIN_LOG_WEIGHT)."""
    return log.masked_fill(log < MIN_LOG_WEIGHT, -torch.inf).exp()


def _in_groups(x: Tensor, size: int, dim: int = -2) -> Tensor:
    """Axis `dim` as groups (K, size), the last one completed with zeros."""
    after = x.dim() - 1 - dim % x.dim()
    return torch.unflatten(F.pad(x, (0, 0) * after + (0, -x.shape[dim] % size)), dim, (-1, size))
