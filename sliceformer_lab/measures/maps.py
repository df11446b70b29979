"""Properties of token-mixing matrices: row and column sums, rank, sparsity, and how far they move tokens.

Row i of a map (N, N) holds the weights with which token i receives from each token. Functions take M maps (M, N, N).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from sliceformer_lab.measures.spectrum import singular_values

MIN_WEIGHT = 1e-6  # smaller weights are rounding errors of float32


def matrices(sources: Tensor) -> Tensor:
    """The permutation matrices of source tokens as `shift_sort_index` gives them: (N, M) -> (M, N, N)."""
    tokens = torch.arange(sources.shape[0], device=sources.device)
    return torch.eq(sources.T[..., None], tokens).float()


def spread(count: int, limit: int) -> Tensor:
    """At most `limit` evenly spaced indices of 0 to count - 1, including the first and the last."""
    return torch.linspace(0, count - 1, min(count, limit)).round().long()


def row_error(maps: Tensor) -> Tensor:
    """Largest distance of a row sum from 1, (M, N, N) -> (M,); 0 if every token receives an average."""
    return (maps.sum(-1) - 1).abs().amax(-1)


def column_error(maps: Tensor) -> Tensor:
    """Largest distance of a column sum from 1, (M, N, N) -> (M,); 0 with `row_error` 0 means doubly stochastic."""
    return (maps.sum(-2) - 1).abs().amax(-1)


def density(maps: Tensor) -> Tensor:
    """Share of nonzero weights, (M, N, N) -> (M,); 1 / N for a permutation, 1 for softmax."""
    return (maps.abs() > MIN_WEIGHT).double().mean((-2, -1))


def tokens_read(maps: Tensor) -> Tensor:
    """Effective number of tokens that a token receives from: mean over tokens of exp(entropy of its weights), (M,)."""
    weights = maps.double().abs()
    shares = weights / weights.sum(-1, keepdim=True).clamp_min(torch.finfo(torch.float64).tiny)
    read: Tensor = torch.special.entr(shares).sum(-1).exp().mean(-1)
    return read


def rank_share(maps: Tensor) -> Tensor:
    """Numerical rank divided by N, up to the rounding of the maps, (M, N, N) -> (M,); 1 for every permutation."""
    values = singular_values(maps)
    rounding = values[..., :1] * maps.shape[-1] * torch.finfo(maps.dtype).eps
    return (values > rounding).double().mean(-1)


def reads_through(maps: Tensor, before: Tensor | None = None) -> Tensor:
    """Whether a token can receive from another through a layer: all its maps (M, N, N) -> (N, N) bool.

    With the result of the layers `before` it, through all of them. A token always receives from itself (the shortcut).
    """
    here = torch.eye(maps.shape[-1], dtype=torch.bool, device=maps.device)
    layer = (maps.abs() > MIN_WEIGHT).any(0) | here
    return layer if before is None else (layer.float() @ before.float()) > 0


def overlap(a: Tensor, b: Tensor) -> Tensor:
    """Share of weight that two maps put on the same tokens with the same sign, twice (M, N, N) -> (M,).

    For permutations, the share of tokens with the same source, which is 1 / N by chance.
    """
    a, b = a.double(), b.double()
    shared = torch.minimum(a.abs(), b.abs()).where(a * b > 0, 0).sum((-2, -1))
    total = (a.abs() + b.abs()).sum((-2, -1)) / 2
    return shared / total.clamp_min(torch.finfo(torch.float64).tiny)


def token_distances(num_tokens: int) -> Tensor:
    """Distances |i - j| of the tokens of a sequence, (N, N)."""
    places = torch.arange(num_tokens).double()
    return (places[:, None] - places).abs()


def apart_on_grid(grid: Sequence[int], token_order: Sequence[int] | None = None) -> Tensor:
    """Euclidean distances of the tokens on a grid (rows, columns), (N, N).

    `token_order` is the cell of each token, counted row by row; None means this order itself.
    """
    rows, columns = grid
    places = torch.cartesian_prod(torch.arange(rows), torch.arange(columns)).double()
    if token_order is not None:
        places = places[list(token_order)]
    return torch.cdist(places, places, compute_mode="donot_use_mm_for_euclid_dist")


def weighted_distances(maps: Tensor, distances: Tensor) -> tuple[Tensor, Tensor]:
    """All different distances of a matrix (N, N), ascending (U,), and the share of weight that each moves (U,).

    Absolute weights are summed over all maps (M, N, N).
    """
    values, place = torch.unique(distances.flatten(), return_inverse=True)
    weight = maps.double().abs().sum(0).flatten()
    shares = torch.zeros(len(values), dtype=torch.float64).index_add_(0, place, weight)
    return values, shares / shares.sum().clamp_min(torch.finfo(torch.float64).tiny)


def quantile(values: Tensor, shares: Tensor, level: float) -> float:
    """The smallest of ascending values (U,) whose cumulative share (U,) reaches `level`."""
    reached = shares.cumsum(0) >= level - 1e-9
    return float(values[int(reached.int().argmax())])


def binned(values: Tensor, shares: Tensor, num_bins: int) -> Tensor:
    """Shares (U,) of ascending values (U,), summed in equal bins from 0 to the largest value: (num_bins,)."""
    width = float(values[-1]) / num_bins or 1.0
    place = (values / width).long().clamp(max=num_bins - 1)
    return torch.zeros(num_bins, dtype=torch.float64).index_add_(0, place, shares)
