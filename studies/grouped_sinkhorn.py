"""Theorem 2 of CSP: a grouped sort along channel 0 is the limit of doubly stochastic attention at low temperature.

Everything is computed in float64, in logarithms, because exp(1 / tau) overflows long before the limit is near.
"""

from __future__ import annotations

import torch
from torch import Tensor


def grouped_sinkhorn_maps(v: Tensor, *, group_size: int | None, tau: float, iterations: int) -> Tensor:
    """Attention maps Sinkhorn_t(exp(v_1 v_c^T / tau)) of each channel and group: (B, N, C) -> (B, C, K, G, G).

    Each of the `iterations` t normalises the rows and then the columns; after enough of them both sum to 1. v_1 is
    channel 0, and its own map approaches the identity, because values pair best with themselves. A group is
    `group_size` G neighbouring tokens, or all tokens for None; shift the channels before. Raises ValueError if G does
    not divide N, or if tau or iterations are not positive. Source: CSP, equation (9).
    """
    num_tokens = v.shape[1]
    size = group_size or num_tokens
    if num_tokens % size:
        raise ValueError(f"group_size={size} does not divide {num_tokens} tokens; the theorem needs equal groups")
    if tau <= 0 or iterations < 1:
        raise ValueError(f"tau must be above 0 and iterations at least 1, got {tau} and {iterations}")
    groups = torch.unflatten(v.double().transpose(1, 2), 2, (-1, size))  # (B, C, K, G)
    scores = groups[:, :1, :, :, None] * groups[:, :, :, None, :] / tau
    for _ in range(iterations):
        scores = scores - scores.logsumexp(dim=-1, keepdim=True)
        scores = scores - scores.logsumexp(dim=-2, keepdim=True)
    return scores.exp()


def grouped_sinkhorn(v: Tensor, *, group_size: int | None, tau: float, iterations: int) -> Tensor:
    """Each channel mixed by its maps: (B, N, C) -> (B, N, C) in float64.

    For small tau it approaches `attention=csp` with reference=channel0 and shift=none, if no two values in a group of a
    channel are equal (CSP, Theorem 2). A small tau needs many iterations. Raises ValueError like
    `grouped_sinkhorn_maps`.
    """
    maps = grouped_sinkhorn_maps(v, group_size=group_size, tau=tau, iterations=iterations)
    groups = torch.unflatten(v.double().transpose(1, 2), 2, (-1, maps.shape[-1]))
    return (maps @ groups[..., None]).squeeze(-1).flatten(2).transpose(1, 2)
