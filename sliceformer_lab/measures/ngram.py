"""Next tokens predicted from counts of n-grams: the reference of a language model."""

from __future__ import annotations

import numpy as np

Array = np.ndarray
MAX_NGRAM_NUMBER = 2**62  # of the number of an n-gram


def ngram_bits(train: Array, windows: Array, vocab_size: int, order: int) -> list[Array]:
    """Bits of each token of the windows (n, N + 1) but the first, by n-grams of 1 to `order` tokens of `train` (m,).

    A list of (n, N). Counts are discounted by a constant and interpolated with those of the n-grams that are one
    shorter, the shortest with equal probabilities (Ney, Essen and Kneser 1994, with their estimate of the constant). No
    n-gram reaches beyond its window. Orders whose n-grams have no number below MAX_NGRAM_NUMBER are left out.
    """
    probability = np.full((len(windows), windows.shape[1] - 1), 1 / vocab_size)
    found = []
    for length in range(1, order + 1):
        if vocab_size**length > MAX_NGRAM_NUMBER or len(train) < length:
            break
        better = _interpolate_shares(
            _number_ngrams(train, vocab_size, length), _number_ngrams(windows, vocab_size, length), vocab_size
        )
        probability = probability.copy()
        skipped = max(length - 2, 0)  # tokens with less context keep the shorter n-grams
        discounted, rest = (part[:, 1:] if length == 1 else part for part in better)
        probability[:, skipped:] = discounted + rest * probability[:, skipped:]
        found.append(-np.log2(probability))
    return found


def _number_ngrams(ids: Array, vocab_size: int, length: int) -> Array:
    """The number of each n-gram along the last axis: (..., N) -> (..., N - length + 1)."""
    last = ids.shape[-1] - length + 1
    numbers = np.zeros_like(ids[..., :last], dtype=np.int64)
    for place in range(length):
        numbers = numbers * vocab_size + ids[..., place : place + last]
    return numbers


def _interpolate_shares(train: Array, asked: Array, vocab_size: int) -> tuple[Array, Array]:
    """The discounted share of each n-gram after its context, and the weight that is left for shorter ones."""
    ngrams, counts = np.unique(train, return_counts=True)
    contexts, starts = np.unique(ngrams // vocab_size, return_index=True)
    totals = np.add.reduceat(counts, starts)
    kinds = np.diff(starts, append=len(ngrams))
    once, twice = (int((counts == times).sum()) for times in (1, 2))
    discount = once / (once + 2 * twice) if once else 0.5
    count = np.where(_is_known(ngrams, asked), counts[_find_place(ngrams, asked)], 0)
    context = asked // vocab_size
    known, place = _is_known(contexts, context), _find_place(contexts, context)
    share = np.maximum(count - discount, 0) / totals[place]
    return np.where(known, share, 0), np.where(known, discount * kinds[place] / totals[place], 1)


def _find_place(of: Array, asked: Array) -> Array:
    return np.searchsorted(of, asked).clip(max=len(of) - 1)


def _is_known(of: Array, asked: Array) -> Array:
    return np.asarray(of[_find_place(of, asked)] == asked)
