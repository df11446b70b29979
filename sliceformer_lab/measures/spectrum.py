"""Singular values and ranks of token matrices, and their remainder without the mean token or the main profile.

An operator can collapse tokens in two ways: to `1 x^T`, where all tokens are equal (softmax attention), and to `q a^T`,
where all channels have the same profile over the tokens (complete sorting). The two removals subtract these parts.
Everything is computed in float64 and batched over the leading dimensions. A batch of small decompositions takes several
times as long on two threads as on one, because they wait for each other in each matrix.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor


def singular_values(x: Tensor) -> Tensor:
    """Singular values in descending order, (..., N, C) -> (..., min(N, C)) in float64."""
    exact = x.double()
    tall = exact.mT if x.shape[-2] < x.shape[-1] else exact
    with _one_thread():
        square = tall if x.shape[-2] == x.shape[-1] else torch.linalg.qr(tall, mode="r").R  # has the same values
        values: Tensor = torch.linalg.svdvals(square)
    return values


def stable_rank(values: Tensor) -> Tensor:
    """`|X|_F^2 / s_1^2` of singular values, (..., R) -> (...); 0 for a zero matrix."""
    energy = values.square()
    return _divide(energy.sum(-1), energy.amax(-1))


def effective_rank(values: Tensor) -> Tensor:
    """exp of the entropy of singular values scaled to sum 1, (..., R) -> (...); 0 for a zero matrix.

    Source: Roy and Vetterli, The effective rank, 2007.
    """
    total = values.sum(-1, keepdim=True)
    rank = torch.special.entr(_divide(values, total)).sum(-1).exp()
    return torch.where(total.squeeze(-1) > 0, rank, 0.0)


def normalised(values: Tensor) -> Tensor:
    """`s_i / s_1`, (..., R) -> (..., R); 0 for a zero matrix."""
    return _divide(values, values.amax(-1, keepdim=True))


def remove_token_mean(x: Tensor) -> Tensor:
    """X - 1 m^T with the mean token m, (..., N, C) -> (..., N, C) in float64; exactly 0 for equal tokens."""
    exact = x.double()
    return _without_rounding(exact - exact.mean(-2, keepdim=True), x)


def remove_profile(x: Tensor) -> Tensor:
    """X minus its nearest rank-one matrix q a^T, (..., N, C) -> (..., N, C) in float64; exactly 0 for rank one."""
    exact = x.double()
    wide = x.shape[-2] < x.shape[-1]
    gram = exact @ exact.mT if wide else exact.mT @ exact  # of the shorter side: cheaper than a full SVD
    with _one_thread():
        main = torch.linalg.eigh(gram).eigenvectors[..., -1:]
    profile = main @ (main.mT @ exact) if wide else (exact @ main) @ main.mT
    return _without_rounding(exact - profile, x)


def token_cosine(x: Tensor) -> Tensor:
    """Mean cosine of all pairs of different tokens, (..., N, C) -> (...); NaN for one token.

    A zero token has cosine 0 with every other token. No N x N matrix is computed.
    """
    unit = torch.nn.functional.normalize(x.double(), dim=-1, eps=torch.finfo(torch.float64).tiny)
    num_tokens = x.shape[-2]
    pairs = unit.sum(-2).square().sum(-1) - unit.square().sum((-2, -1))  # |sum u|^2 contains each pair twice and |u|^2
    return _divide(pairs, pairs.new_tensor(num_tokens * (num_tokens - 1))) if num_tokens > 1 else pairs * torch.nan


@contextmanager
def _one_thread() -> Iterator[None]:
    """Lets torch use one thread on the CPU, and then as many as before."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _divide(part: Tensor, whole: Tensor) -> Tensor:
    return torch.where(whole > 0, part / whole.clamp_min(torch.finfo(whole.dtype).tiny), 0.0)


def _without_rounding(rest: Tensor, x: Tensor) -> Tensor:
    """`rest`, or 0 if it is only a rounding error of x, because noise has full rank."""
    rounding = max(2 * torch.finfo(x.dtype).eps, 1e-12)  # rounding of x and of the float64 decomposition
    is_more = torch.linalg.matrix_norm(rest) > rounding * torch.linalg.matrix_norm(x.double())
    return torch.where(is_more[..., None, None], rest, 0.0)
