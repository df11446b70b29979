"""Distances from the two kinds of collapse, random tokens and random layers: their properties."""

from __future__ import annotations

import pytest
import torch
from random_tokens import correlated_tokens, distances, projected, random_layers
from torch import Tensor

from sliceformer_lab.measures.spectrum import remove_token_mean, singular_values, stable_rank


def test_distances_are_those_of_the_nearest_matrices() -> None:
    x = torch.randn(2, 6, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    equal, profile = distances(x)
    norm = torch.linalg.matrix_norm(x)
    singular = singular_values(x)
    torch.testing.assert_close(equal, torch.linalg.matrix_norm(x - x.mean(1, keepdim=True)) / norm)
    torch.testing.assert_close(profile, singular[:, 1:].square().sum(1).sqrt() / norm)
    assert (profile <= equal).all()


def test_orthogonal_layers_change_no_rank_by_themselves() -> None:
    def unchanged(v: Tensor, q: Tensor, k: Tensor) -> Tensor:
        del q, k
        return v

    x = torch.randn(1, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    tokens = random_layers(x, [unchanged] * 5, torch.Generator().manual_seed(1), skip=False)
    assert len(tokens) == 6
    for layer in tokens:
        torch.testing.assert_close(singular_values(layer), singular_values(x))
    assert not torch.allclose(tokens[1], x)


def test_values_queries_and_keys_have_the_norm_of_the_tokens_and_weights_of_their_own() -> None:
    x = torch.randn(1, 64, 256, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for orthogonal in (False, True):
        parts = projected(x, torch.Generator().manual_seed(1), orthogonal=orthogonal)
        for part in parts:
            assert float(part.std()) == pytest.approx(1.0, rel=0.02)
        assert not any(torch.allclose(a, b) for a, b in zip(parts, (*parts[1:], parts[0]), strict=True))


def test_correlated_tokens_resemble_their_neighbours_and_share_a_mean() -> None:
    x = correlated_tokens(64, 4000, torch.Generator().manual_seed(0), window=8, mean=2.0)
    assert float(x.mean(0).var()) == pytest.approx(4.0 + 1 / 8, rel=0.1)  # the mean of 64 smoothed values remains
    for apart, expected in ((1, 7 / 8), (4, 4 / 8), (63, 7 / 8)):  # the last token neighbours the first
        assert float((x[apart] * x[0]).mean()) - 4.0 == pytest.approx(expected, abs=0.25)
    assert float(stable_rank(singular_values(remove_token_mean(x)))) < 15
    with pytest.raises(ValueError, match=r"window must be within 1\.\.64"):
        correlated_tokens(64, 2, torch.Generator(), window=65)
