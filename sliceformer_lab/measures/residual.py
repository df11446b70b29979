"""How far a matrix of tokens is from `1 x^T`, every token the same: norms, residuals, and the bound CSP proves on them.

Definitions: CSP, section 3 and Theorem 1, where the residual of X is X - 1 x^T for the nearest x. Which x is nearest
depends on the norm, so the centre is a choice. Everything is computed in float64 and batched: (..., N, C) -> (...).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, assert_never

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import linprog
from torch import Tensor

Centre = Literal["mean", "median", "midrange", "lp", "per_norm"]

GELU_LIPSCHITZ = 0.5 * (1 + math.erf(1)) + math.exp(-1) / math.sqrt(math.pi)  # its largest slope, at sqrt(2)


def norm_1(x: Tensor) -> Tensor:
    """Largest absolute column sum, (..., N, C) -> (...)."""
    return x.double().abs().sum(-2).amax(-1)


def norm_inf(x: Tensor) -> Tensor:
    """Largest absolute row sum, (..., N, C) -> (...)."""
    return x.double().abs().sum(-1).amax(-1)


def norm_1_inf(x: Tensor) -> Tensor:
    """The composite sqrt(|X|_1 |X|_inf), (..., N, C) -> (...)."""
    return (norm_1(x) * norm_inf(x)).sqrt()


def centre_of(x: Tensor, centre: Literal["mean", "median", "midrange", "lp"] = "mean") -> Tensor:
    """The token x that stands for all, (..., N, C) -> (..., 1, C).

    `median` minimises the residual's 1-norm, `lp` its inf-norm (a linear program per matrix: slow), `mean` its
    Frobenius norm; `midrange` is half way between the extremes of a channel.
    """
    x = x.double()
    match centre:
        case "mean":
            return x.mean(-2, keepdim=True)
        case "median":
            return x.quantile(0.5, dim=-2, keepdim=True)  # of an even number the midpoint
        case "midrange":
            return (x.amax(-2, keepdim=True) + x.amin(-2, keepdim=True)) / 2
        case "lp":
            matrices = x.reshape(-1, *x.shape[-2:]).cpu().numpy()
            found = np.stack([_smallest_row_norm(matrix) for matrix in matrices])
            return torch.from_numpy(found).to(x.device).reshape(*x.shape[:-2], 1, x.shape[-1])
        case _:
            assert_never(centre)


def residual(x: Tensor, centre: Centre = "mean") -> Tensor:
    """The (1,inf)-norm of X - 1 x^T, (..., N, C) -> (...).

    `per_norm` takes the best centre of each of the two norms, the lower bound that Theorem 1 speaks of.
    """
    x = x.double()
    if centre == "per_norm":
        return (norm_1(x - centre_of(x, "median")) * norm_inf(x - centre_of(x, "lp"))).sqrt()
    return norm_1_inf(x - centre_of(x, centre))


def relative_residual(x: Tensor, centre: Centre = "mean") -> Tensor:
    """The residual over the (1,inf)-norm of X itself, (..., N, C) -> (...); 0 where all tokens are equal."""
    return residual(x, centre) / norm_1_inf(x).clamp_min(torch.finfo(torch.float64).tiny)


def csp_bound_factor(weights: Sequence[Tensor], lipschitz: float = 1.0) -> float:
    """By how much L layers of CSP may at most grow the residual, `C^(L/2) (lambda beta)^L` (CSP, Theorem 1).

    `weights` are the square value projections as torch keeps them, (out, in); `lipschitz` is lambda, that of the
    function between the layers (1 for ReLU, `GELU_LIPSCHITZ`). Holds without biases, skips and norms.
    """
    beta = max(float(norm_inf(weight)) for weight in weights)  # |W|_1 of V = X W, whose W is the transpose
    channels, depth = weights[0].shape[0], len(weights)
    return float(channels ** (depth / 2) * (lipschitz * beta) ** depth)


def _smallest_row_norm(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """The c (C,) with the smallest max_i sum_j |x_ij - c_j|, as a linear program in c, |x_ij - c_j| and the maximum."""
    rows, columns = x.shape
    size = rows * columns
    copies, distances = sparse.vstack([sparse.identity(columns)] * rows), sparse.identity(size)
    row_sums = sparse.kron(sparse.identity(rows), np.ones((1, columns)))
    constraints = sparse.bmat(
        [
            [-copies, -distances, None],  # x - c <= distance
            [copies, -distances, None],  # c - x <= distance
            [None, row_sums, -np.ones((rows, 1))],  # every row's sum <= the maximum
        ]
    ).tocsr()
    limits = np.concatenate([-x.ravel(), x.ravel(), np.zeros(rows)])
    objective = np.concatenate([np.zeros(columns + size), [1.0]])
    bounds = [(None, None)] * columns + [(0, None)] * (size + 1)
    solution = linprog(objective, A_ub=constraints, b_ub=limits, bounds=bounds, method="highs")
    centre: NDArray[np.float64] = solution.x[:columns]
    return centre
