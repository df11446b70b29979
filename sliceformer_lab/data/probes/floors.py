"""Floors of the probes: what a guess reaches that sees no other token, or no arrangement of the tokens."""

from functools import lru_cache
from math import comb

import numpy as np


@lru_cache
def commonest_share(drawn: int, symbols: int) -> float:
    """Expected share of the commonest among `drawn` independent uniform symbols. Exact.

    The number of words whose counts are all at most m is drawn! times the coefficient of x^drawn in
    (sum over k <= m of x^k / k!)^symbols.
    """
    at_most = np.array([_none_above(most, drawn, symbols) for most in range(drawn + 1)])
    return float((1 - at_most[:-1]).sum() / drawn)


def _none_above(most: int, drawn: int, symbols: int) -> float:
    """Probability that no symbol occurs more than `most` times."""
    # the Poisson weights of a mean of drawn / symbols keep the powers in range; the factors cancel in the ratio
    pmf = _poisson_probabilities(drawn / symbols, drawn)
    series, power, left = np.eye(1, drawn + 1)[0], np.where(np.arange(drawn + 1) <= most, pmf, 0.0), symbols
    while left:
        if left & 1:
            series = np.convolve(series, power)[: drawn + 1]
        power, left = np.convolve(power, power)[: drawn + 1], left >> 1
    return float(series[drawn] / _poisson_probabilities(float(drawn), drawn)[drawn])


def _poisson_probabilities(mean: float, largest: int) -> np.ndarray:
    counts = np.arange(largest + 1)
    log_factorial = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, largest + 1)))])
    weights: np.ndarray = np.exp(counts * np.log(mean) - mean - log_factorial)
    return weights


def commonest_count(num_tokens: int, present: range, classes: int) -> float:
    """Share of the commonest label where the label is how often the own one of s symbols occurs. Exact.

    s is uniform in `present`; label k stands for k + 1 occurrences, the last of `classes` for as many or more.
    """
    others = num_tokens - 1
    labels = np.zeros(classes)
    for symbols in present:
        for same in range(others + 1):
            probability = comb(others, same) * (1 / symbols) ** same * (1 - 1 / symbols) ** (others - same)
            labels[min(same, classes - 1)] += probability / len(present)
    return float(labels.max())


@lru_cache
def nearest_rank(num_tokens: int, grid: int = 300) -> float:
    """Share of right guesses at the i-th smallest of uniform numbers, from i and one of the numbers.

    The guess is the mean of the i-th smallest, which squared error asks for. It is right if no other order statistic is
    nearer. The probability is integrated over the own number and the distance to the nearest one (midpoint rule). A
    guess that aims at this score instead of squared error is right more often: .347 instead of .300 of 16 numbers.
    """
    points = (np.arange(grid) + 0.5) / grid
    x, d = points[:, None], points[None, :]
    others = num_tokens - 1
    binomial = [comb(others, k) * points**k * (1 - points) ** (others - k) for k in range(num_tokens)]
    at_most = np.concatenate([np.zeros((1, grid)), np.cumsum(binomial, axis=0)])  # of the others below t, at k + 1
    right = 0.0
    for below in range(num_tokens):  # numbers below the one that is asked for
        # E[X] is the integral over t of P(X > t): at most `below` numbers lie below t, of which x is one if x < t
        y = np.where(points[None, :] <= x, at_most[below + 1], at_most[below]).mean(1, keepdims=True)
        sides = (y + d < 1).astype(float) + (y - d > 0)  # where another number can lie at distance d
        low, high = np.clip(y - d, 0, 1), np.clip(1 - y - d, 0, 1)
        under = below - (x < y)  # of the others, if the own number is farther away
        ways = np.array([0, *(comb(others - 1, k) for k in range(others)), 0], dtype=float)[under + 1]
        farther = (np.abs(x - y) > d) & (ways > 0)
        exponent = np.clip(under, 0, others - 1)
        another = np.where(farther, ways * low**exponent * high ** (others - 1 - exponent), 0.0)
        gap = np.abs(x - y)
        low, high = np.clip(y - gap, 0, 1), np.clip(1 - y - gap, 0, 1)
        itself = comb(others, below) * low**below * high ** (others - below)
        right += float((others * (sides * another).mean(1) + itself[:, 0]).mean())
    return right / num_tokens
