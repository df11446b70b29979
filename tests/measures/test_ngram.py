"""N-grams as the reference of a language model."""

from __future__ import annotations

import numpy as np
import pytest

from sliceformer_lab.measures.ngram import ngram_bits

WORDS = np.random.default_rng(0).integers(1, 4, 200)  # tokens 1 to 3 of a vocabulary of 5


def test_probabilities_of_all_next_tokens_sum_to_one() -> None:
    for context in ([1, 2, 3, 1], [4, 4, 4, 4]):
        windows = np.array([[*context, last] for last in range(5)])
        for bits in ngram_bits(WORDS, windows, 5, 4):
            assert (2.0 ** -bits[:, -1]).sum() == pytest.approx(1)


def test_bigrams_are_discounted_counts_and_the_rest_goes_to_frequencies() -> None:
    train, windows = np.array([1, 2, 1, 2, 1, 3, 1, 3, 3]), np.array([[1, 2]])
    # frequencies: 4, 2, 3 times, one pair seen twice, none once: discount 1/2 of 9; 1 2 was seen twice in 4
    one = (2 - 0.5) / 9 + 0.5 * 3 / 9 / 4
    once, twice = 1, 3  # 33 once; 12, 21, 13 twice; 31 once
    discount = (once + 1) / (once + 1 + 2 * twice)
    two = (2 - discount) / 4 + discount * 2 / 4 * one
    frequencies, bigrams = ngram_bits(train, windows, 4, 2)
    assert 2.0 ** -frequencies[0, 0] == pytest.approx(one)
    assert 2.0 ** -bigrams[0, 0] == pytest.approx(two)


def test_the_first_tokens_of_a_window_have_shorter_ngrams_and_never_an_earlier_window() -> None:
    windows = np.array([[1, 2, 3, 1], [2, 2, 3, 1]])
    found = ngram_bits(WORDS, windows, 5, 3)
    assert found[1][0, 0] == found[2][0, 0] and found[1][0, 1] != found[2][0, 1]
    assert [bits.tolist() for bits in ngram_bits(WORDS, windows[1:], 5, 3)] == [bits[1:].tolist() for bits in found]


def test_orders_whose_numbers_overflow_are_left_out() -> None:
    assert len(ngram_bits(WORDS, WORDS[None, :9], 2**16, 7)) == 3
