"""Distance of a token matrix from `1 x^T`, where all tokens are equal: norms, residuals, and CSP's bound on them.

The residual of X is X - 1 x^T for the nearest x (CSP, section 3 and Theorem 1). The nearest x depends on the norm, so
the centre is an option. Everything is computed in float64 and batched: (..., N, C) -> (...).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Centre = Literal["mean", "median", "lp"]


def norm_1(x: Tensor) -> Tensor:
    """Largest absolute column sum, (..., N, C) -> (...)."""
    return x.double().abs().sum(-2).amax(-1)


def norm_inf(x: Tensor) -> Tensor:
    """Largest absolute row sum, (..., N, C) -> (...)."""
    return x.double().abs().sum(-1).amax(-1)


def norm_1_inf(x: Tensor) -> Tensor:
    """The composite sqrt(|X|_1 |X|_inf), (..., N, C) -> (...)."""
    return (norm_1(x) * norm_inf(x)).sqrt()


def centre_of(x: Tensor, centre: Centre = "mean") -> Tensor:
    """The token x of the nearest `1 x^T`, (..., N, C) -> (..., 1, C).

    `median` minimises the 1-norm of the residual, `mean` its Frobenius norm, and `lp` its inf-norm by a slow linear
    program per matrix.
    """
    x = x.double()
    if centre == "mean":
        return x.mean(-2, keepdim=True)
    if centre == "median":
        return x.quantile(0.5, dim=-2, keepdim=True)  # the midpoint for even numbers of tokens
    found = np.stack([_smallest_row_norm(matrix) for matrix in x.reshape(-1, *x.shape[-2:]).cpu().numpy()])
    return torch.from_numpy(found).to(x.device).reshape(*x.shape[:-2], 1, x.shape[-1])


def residual(x: Tensor, centre: Centre | Literal["per_norm"] = "mean") -> Tensor:
    """The (1,inf)-norm of X - 1 x^T, (..., N, C) -> (...).

    `per_norm` uses the best centre for each of the two norms, which gives the lower bound in Theorem 1.
    """
    x = x.double()
    if centre == "per_norm":
        return (norm_1(x - centre_of(x, "median")) * norm_inf(x - centre_of(x, "lp"))).sqrt()
    return norm_1_inf(x - centre_of(x, centre))


def relative_residual(x: Tensor, centre: Centre = "mean") -> Tensor:
    """The residual divided by the (1,inf)-norm of X, (..., N, C) -> (...); 0 if all tokens are equal."""
    return residual(x, centre) / norm_1_inf(x).clamp_min(torch.finfo(torch.float64).tiny)


def csp_bound_factor(weights: Sequence[Tensor], lipschitz: float = 1.0) -> float:
    """Upper bound `C^(L/2) (lambda beta)^L` on the factor by which L layers of CSP increase the residual.

    `weights` are the square value projections (out, in); `lipschitz` is the constant lambda of the function between the
    layers (1 for ReLU). The bound holds without biases, skips and norms. Source: CSP, Theorem 1.
    """
    beta = max(float(norm_inf(weight)) for weight in weights)  # |W|_1 of V = X W, where W is the transposed weight
    channels, depth = weights[0].shape[0], len(weights)
    return float(channels ** (depth / 2) * (lipschitz * beta) ** depth)


def _smallest_row_norm(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """The c (C,) that minimises max_i sum_j |x_ij - c_j|, by a linear program in c, |x_ij - c_j| and the maximum."""
    from scipy import sparse  # slow to import, and no training run needs it
    from scipy.optimize import linprog

    rows, columns = x.shape
    size = rows * columns
    copies, distances = sparse.vstack([sparse.identity(columns)] * rows), sparse.identity(size)
    row_sums = sparse.kron(sparse.identity(rows), np.ones((1, columns)))
    constraints = sparse.bmat(
        [
            [-copies, -distances, None],  # x - c <= distance
            [copies, -distances, None],  # c - x <= distance
            [None, row_sums, -np.ones((rows, 1))],  # sum of each row <= the maximum
        ]
    ).tocsr()
    limits = np.concatenate([-x.ravel(), x.ravel(), np.zeros(rows)])
    objective = np.concatenate([np.zeros(columns + size), [1.0]])
    bounds = [(None, None)] * columns + [(0, None)] * (size + 1)
    solution = linprog(objective, A_ub=constraints, b_ub=limits, bounds=bounds, method="highs")
    centre: NDArray[np.float64] = solution.x[:columns]
    return centre
