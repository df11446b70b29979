"""What token-mixing matrices look like: sums, rank, sparsity, how far they move tokens, how much they depend on data.

A map (N, N) says in row i what token i receives from each token. All functions take M maps at once, (M, N, N).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

NONZERO = 1e-6  # of a weight; below is the rounding of float32


def matrices(sources: Tensor) -> Tensor:
    """The permutation matrices of source tokens (N, M), as `shift_sort_index` gives them, -> (M, N, N)."""
    tokens = torch.arange(sources.shape[0], device=sources.device)
    return torch.eq(sources.T[..., None], tokens).float()


def spread(count: int, limit: int) -> Tensor:
    """At most `limit` of the indices 0 to count - 1, evenly spread, the first and the last among them."""
    return torch.linspace(0, count - 1, min(count, limit)).round().long()


def row_error(maps: Tensor) -> Tensor:
    """How far the worst row sum is from 1, (M, N, N) -> (M,); 0 where every token receives an average."""
    return (maps.sum(-1) - 1).abs().amax(-1)


def column_error(maps: Tensor) -> Tensor:
    """How far the worst column sum is from 1, (M, N, N) -> (M,); 0 beside `row_error` 0 means doubly stochastic."""
    return (maps.sum(-2) - 1).abs().amax(-1)


def density(maps: Tensor) -> Tensor:
    """The share of weights that are not zero, (M, N, N) -> (M,); 1 / N for a permutation, 1 for softmax."""
    return (maps.abs() > NONZERO).double().mean((-2, -1))


def tokens_read(maps: Tensor) -> Tensor:
    """From how many tokens a token receives, exp of the entropy of its weights' shares, mean of the tokens. -> (M,)."""
    weights = maps.double().abs()
    shares = weights / weights.sum(-1, keepdim=True).clamp_min(torch.finfo(torch.float64).tiny)
    read: Tensor = torch.special.entr(shares).sum(-1).exp().mean(-1)
    return read


def rank_share(maps: Tensor) -> Tensor:
    """The numerical rank over N, (M, N, N) -> (M,); 1 for every permutation, whatever it does to values."""
    ranks: Tensor = torch.linalg.matrix_rank(maps.double())
    return ranks.double() / maps.shape[-1]


def overlap(a: Tensor, b: Tensor) -> Tensor:
    """The share of weight that two maps put on the same tokens with the same sign, twice (M, N, N) -> (M,).

    Of permutations the share of tokens that receive from the same place, 1 / N by chance.
    """
    a, b = a.double(), b.double()
    shared = torch.minimum(a.abs(), b.abs()).where(a * b > 0, 0).sum((-2, -1))
    all_of_it = (a.abs() + b.abs()).sum((-2, -1)) / 2
    return shared / all_of_it.clamp_min(torch.finfo(torch.float64).tiny)


def apart(num_tokens: int) -> Tensor:
    """|i - j| of all tokens of a sequence, (N, N)."""
    places = torch.arange(num_tokens).double()
    return (places[:, None] - places).abs()


def apart_on_grid(grid: Sequence[int], token_order: Sequence[int] | None = None) -> Tensor:
    """Euclidean distance of the patches of a grid (rows, columns), (N, N).

    `token_order` says which patch, counted row by row, each token is; None: they stand in this order.
    """
    rows, columns = grid
    places = torch.cartesian_prod(torch.arange(rows), torch.arange(columns)).double()
    if token_order is not None:
        places = places[list(token_order)]
    return torch.cdist(places, places, compute_mode="donot_use_mm_for_euclid_dist")


def travelled(maps: Tensor, distances: Tensor) -> tuple[Tensor, Tensor]:
    """Every distance (N, N) that occurs, rising (U,), and the share of weight that travels so far (U,).

    Over all maps (M, N, N) together; weights count by their size.
    """
    values, place = torch.unique(distances.flatten(), return_inverse=True)
    weight = maps.double().abs().sum(0).flatten()
    shares = torch.zeros(len(values), dtype=torch.float64).index_add_(0, place, weight)
    return values, shares / shares.sum().clamp_min(torch.finfo(torch.float64).tiny)


def quantile(values: Tensor, shares: Tensor, level: float) -> float:
    """The smallest of rising values (U,) below or at which at least `level` of their shares (U,) lie."""
    reached = shares.cumsum(0) >= level - 1e-9
    return float(values[int(reached.int().argmax())])


def binned(values: Tensor, shares: Tensor, num_bins: int) -> Tensor:
    """Shares (U,) of values (U,) from 0 to their largest, in equal bins. -> (num_bins,)."""
    width = float(values[-1]) / num_bins or 1.0
    place = (values / width).long().clamp(max=num_bins - 1)
    return torch.zeros(num_bins, dtype=torch.float64).index_add_(0, place, shares)
