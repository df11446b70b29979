"""Each control operator against a brute-force loop over samples, tokens and channels."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from sliceformer_lab.attention import Attention
from sliceformer_lab.attention.base import BlockInputs
from sliceformer_lab.attention.contract import DIM, MAX_LEN, make_spec, padded, tokens
from sliceformer_lab.attention.depthwise_conv import DepthwiseConv
from sliceformer_lab.attention.fnet import FNet
from sliceformer_lab.attention.identity import Identity
from sliceformer_lab.attention.mean import Mean
from sliceformer_lab.attention.random_permutation import RandomPermutation
from sliceformer_lab.batch import Padding

LENGTHS = (1, 5, 12, 13)


def mixed_rows(layer: Attention) -> list[tuple[Tensor, Tensor]]:
    """(values, mix) of every sample's real tokens (n, C), from a padded batch and from each sample alone."""
    samples = [tokens(n, batch=1, seed=n)[0] for n in LENGTHS]
    x, padding = padded(samples, MAX_LEN)
    together = [
        row[: len(sample)] for row, sample in zip(layer.mix(x, given=BlockInputs(padding)), samples, strict=True)
    ]
    alone = [layer.mix(sample[None])[0] for sample in samples]
    return list(zip(samples * 2, together + alone, strict=True))


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


def test_identity_keeps_every_token() -> None:
    for values, mixed in mixed_rows(Identity(make_spec())):
        assert torch.equal(mixed, values)


def test_mean_gives_every_token_the_mean_of_the_real_ones() -> None:
    for values, mixed in mixed_rows(Mean(make_spec())):
        for token in mixed:
            assert_close(token, sum(values) / len(values))


def test_random_permutation_orders_real_tokens_by_their_keys() -> None:
    layer = RandomPermutation(make_spec())
    for values, mixed in mixed_rows(layer):
        for channel in range(DIM):
            order = sorted(range(len(values)), key=lambda token, c=channel: layer.keys[c, token])
            assert torch.equal(mixed[:, channel], values[order, channel])


def test_random_permutation_differs_between_channels_and_seeds_and_comes_from_the_seed_alone() -> None:
    first, other = RandomPermutation(make_spec()).keys, RandomPermutation(make_spec()).keys
    torch.manual_seed(0)  # as the fixture did
    assert torch.equal(RandomPermutation(make_spec()).keys, first) and not torch.equal(first, other)
    assert len({tuple(row.tolist()) for row in first}) == DIM
    assert torch.equal(first.sort(1)[0], torch.arange(MAX_LEN, dtype=torch.int32).expand(DIM, -1))


def test_random_permutation_names_the_length_it_cannot_take() -> None:
    with pytest.raises(ValueError, match="at most 16 tokens, got 17"):
        RandomPermutation(make_spec()).mix(tokens(17))
    with pytest.raises(ValueError, match="max_len"):
        RandomPermutation(make_spec(max_len=None))


@pytest.mark.parametrize("kernel_size", [1, 3, 5])
def test_convolution_sums_neighbours_and_takes_zero_beyond_the_ends(kernel_size: int) -> None:
    layer = DepthwiseConv(make_spec(), kernel_size=kernel_size)
    weight, reach = layer.conv.weight[:, 0], kernel_size // 2  # (C, k)
    for values, mixed in mixed_rows(layer):
        for i, token in enumerate(mixed):
            near = [j for j in range(i - reach, i + reach + 1) if 0 <= j < len(values)]
            assert_close(token, sum(weight[:, j - i + reach] * values[j] for j in near))


def test_convolution_on_a_grid_sums_neighbouring_patches_and_leaves_the_prefix() -> None:
    rows, columns = 2, 3
    layer = DepthwiseConv(make_spec(grid=(rows, columns), num_prefix=1, max_len=1 + rows * columns))
    x = tokens(1 + rows * columns, batch=1)
    mixed = layer.mix(x)
    assert torch.equal(mixed[:, 0], x[:, 0])
    weight = layer.conv.weight[:, 0]  # (C, 3, 3)
    for r in range(rows):
        for c in range(columns):
            near = [(a, b) for a in range(rows) for b in range(columns) if max(abs(a - r), abs(b - c)) <= 1]
            expected = sum(weight[:, a - r + 1, b - c + 1] * x[0, 1 + a * columns + b] for a, b in near)
            assert_close(mixed[0, 1 + r * columns + c], expected)


def test_fnet_is_the_fourier_transform_of_the_real_tokens() -> None:
    for values, mixed in mixed_rows(FNet(make_spec())):
        assert_close(mixed, torch.fft.fft2(values, norm="ortho").real, atol=1e-5, rtol=1e-5)


def test_fnet_keeps_its_digits_at_long_ragged_lengths() -> None:
    lengths = torch.tensor([16384, 16381, 9973])
    x = torch.randn(3, 16384, 4)
    padding = Padding.from_lengths(lengths, 16384)
    mixed = FNet(make_spec(dim=4)).mix(x, given=BlockInputs(padding))
    for row, values, n in zip(mixed, x, lengths.tolist(), strict=True):
        exact = torch.fft.fft2(values[:n].double(), norm="ortho").real
        assert (row[:n] - exact).abs().max() < 2e-5 * exact.abs().max()
        assert not row[n:].any()
