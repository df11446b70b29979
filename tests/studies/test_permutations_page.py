"""The statements of studies/permutations.md that are finite hold by brute force."""

from __future__ import annotations

import math
from functools import reduce
from itertools import permutations, product
from typing import get_args

import numpy as np
import pytest

from sliceformer_lab.permute.schedule import Shift, distances_reached, shift_steps


@pytest.mark.parametrize("shift", get_args(Shift))
def test_deep_shifts_reach_the_multiples_of_the_common_divisor(shift: Shift) -> None:
    for size, channels in product(range(2, 25), (1, 2, 3, 4, 8)):
        steps = shift_steps(shift, channels, size)
        reached, before = {0}, set[int]()
        while reached != before:  # every sum of steps, one step more in each layer
            before, reached = reached, {(place + step) % size for place in reached for step in (0, *steps)}
        divisor = reduce(math.gcd, steps, size)
        assert reached == set(range(0, size, divisor))
        assert distances_reached([steps] * size, size)[-1] == size // divisor


def test_the_linear_schedule_is_complete_if_its_stride_and_the_length_share_no_divisor() -> None:
    for size, channels in product(range(2, 40), (1, 2, 3, 4, 8, 16)):
        divisor = math.gcd(math.ceil(size / channels), size)
        assert distances_reached([shift_steps("linear_paper", channels, size)] * size, size)[-1] == size // divisor
        assert distances_reached([shift_steps("linear_coprime", channels, size)] * size, size)[-1] == size


@pytest.mark.parametrize(("bits", "symbols"), [(1, 2), (1, 3), (1, 4), (2, 5)])
def test_no_code_of_so_many_bits_names_more_symbols_than_it_has_words(bits: int, symbols: int) -> None:
    best = 0.0
    for code in product(range(2**bits), repeat=symbols):  # what the source sends for each symbol
        decoded = {word: code.index(word) for word in code}  # any symbol with this word is as good
        best = max(best, sum(decoded[word] == symbol for symbol, word in enumerate(code)) / symbols)
    assert best == min(1.0, 2**bits / symbols)


def test_a_fixed_permutation_of_each_channel_splits_the_channels_over_the_sources() -> None:
    size, channels = 32, 64
    steps = np.array(shift_steps("linear_paper", channels, size))
    for token in (0, 5, 31):
        counts = np.bincount((token - steps) % size, minlength=size)
        assert counts.sum() == channels and counts.max() == 2


@pytest.mark.parametrize("scale", [1.0, 5.0, 20.0])
def test_softmax_gives_the_right_key_at_least_the_stated_weight(scale: float) -> None:
    keys = np.random.default_rng(0).normal(size=(50, 12))
    keys /= np.linalg.norm(keys, axis=1, keepdims=True)
    products = keys @ keys.T
    gap = 1 - products[~np.eye(50, dtype=bool)].max()
    weights = np.exp(scale * products) / np.exp(scale * products).sum(axis=1, keepdims=True)
    assert weights.diagonal().min() >= 1 / (1 + 49 * math.exp(-scale * gap)) > 0


@pytest.mark.parametrize("size", [2, 4, 6])
def test_sorted_pairs_map_two_arrangements_of_every_pair_to_one(size: int) -> None:
    outputs: dict[tuple[int, ...], int] = {}
    for values in permutations(range(size)):
        paired = tuple(np.sort(np.reshape(values, (-1, 2)), axis=1).ravel().tolist())
        outputs[paired] = outputs.get(paired, 0) + 1
    assert set(outputs.values()) == {2 ** (size // 2)}
