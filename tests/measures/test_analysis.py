"""Properties of the analysis functions; golden files have their values."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from sliceformer_lab.measures.probe import chosen_tokens, measure, measure_layers, measure_samples, over_samples
from sliceformer_lab.measures.probe_record import FORMS, PLACES
from sliceformer_lab.measures.residual import norm_1_inf, relative_residual, residual
from sliceformer_lab.measures.spectrum import (
    effective_rank,
    normalised,
    remove_profile,
    remove_token_mean,
    singular_values,
    stable_rank,
    token_cosine,
)


def test_functions_treat_leading_dimensions_as_a_batch() -> None:
    x = torch.randn(2, 3, 7, 5)
    for function in (
        residual,
        lambda m: residual(m, "per_norm"),
        lambda m: effective_rank(singular_values(m)),
        token_cosine,
        remove_profile,
        remove_token_mean,
    ):
        one_by_one = torch.stack([torch.stack([function(m) for m in row]) for row in x])
        torch.testing.assert_close(function(x), one_by_one)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_what_only_rounding_leaves_behind_counts_as_rank_zero(dtype: torch.dtype) -> None:
    equal_tokens = torch.randn(1, 8).expand(16, 8).to(dtype)
    one_profile = torch.outer(torch.randn(16).double(), torch.randn(8).double()).to(dtype)
    for rest in (remove_token_mean(equal_tokens), remove_profile(one_profile)):
        s = singular_values(rest)
        assert float(rest.abs().max()) == 0.0
        assert (float(stable_rank(s)), float(effective_rank(s))) == (0.0, 0.0)
        assert float(normalised(s).sum()) == 0.0
    assert float(relative_residual(torch.zeros(4, 3))) == 0.0


def test_removing_the_profile_removes_the_largest_singular_value_only() -> None:
    x = torch.randn(3, 10, 6)
    torch.testing.assert_close(singular_values(remove_profile(x))[:, :5], singular_values(x)[:, 1:])


def test_token_cosine_is_the_mean_over_pairs() -> None:
    x = torch.randn(9, 5, dtype=torch.float64)
    unit = x / x.norm(dim=-1, keepdim=True)
    pairs = (unit @ unit.T)[~torch.eye(9, dtype=torch.bool)]
    torch.testing.assert_close(token_cosine(x), pairs.mean())
    assert float(token_cosine(x[:1].expand(4, 5))) == pytest.approx(1.0)
    assert token_cosine(x[:1]).isnan()


def test_each_form_of_a_probe_is_measured_as_its_definition_says() -> None:
    x = torch.randn(3, 8, 5)
    found = dict(zip(FORMS, measure(x)["residual"].unbind(1), strict=True))
    torch.testing.assert_close(found["raw"], relative_residual(x))
    torch.testing.assert_close(found["mean_removed"], relative_residual(x))
    torch.testing.assert_close(found["profile_removed"], residual(remove_profile(x)) / norm_1_inf(x))
    for i, form in enumerate((x, remove_token_mean(x), remove_profile(x))):
        torch.testing.assert_close(measure(x)["cosine"][:, i], token_cosine(form))
        torch.testing.assert_close(measure(x)["stable_rank"][:, i], stable_rank(singular_values(form)))


def test_samples_of_different_lengths_are_measured_one_by_one() -> None:
    x, lengths = torch.randn(4, 9, 6), torch.tensor([9, 4, 1, 2])
    found = measure_samples(x, lengths, num_prefix=1)
    alone = measure(x[1:2, 1:4])
    for name, values in alone.items():
        torch.testing.assert_close(found[name][1, ..., : values.shape[-1]], values[0], equal_nan=True)
    assert found["spectrum"].shape == (4, len(FORMS), 6)
    assert found["spectrum"][1, :, 3:].isnan().all()
    assert found["stable_rank"][2].isnan().all()  # a sample of nothing but CLS
    assert found["cosine"][3].isnan().all()  # one token has no other


@pytest.mark.parametrize(("tokens", "channels", "counts"), [(5, 8, (5, 4, 4)), (8, 8, (8, 7, 7)), (8, 5, (5, 5, 4))])
def test_a_spectrum_has_no_zero_that_a_removal_always_leaves(
    tokens: int, channels: int, counts: tuple[int, ...]
) -> None:
    spectrum = measure(torch.randn(2, tokens, channels))["spectrum"]
    assert spectrum.isfinite().sum(2).tolist() == [list(counts)] * 2
    assert spectrum.nan_to_num(1.0).min() > 1e-6


def test_a_singular_value_that_few_samples_have_has_no_mean() -> None:
    x, lengths = torch.randn(4, 9, 6), torch.tensor([9, 3, 4, 3])
    places = [measure_samples(x, lengths)] * len(PLACES)
    mean, std, count = over_samples([places], "spectrum")
    assert count[0, 0, 0].tolist() == [4, 4, 4, 2, 1, 1]
    assert np.isfinite(mean[0, 0, 0]).tolist() == [True] * 4 + [False] * 2 == np.isfinite(std[0, 0, 0]).tolist()
    assert mean[0, 0, 0, 3] == pytest.approx(float(places[0]["spectrum"][[0, 2], 0, 3].mean()))
    assert over_samples([places], "cosine")[2][0, 0, 0] == 4
    few = [measure_samples(x[:, :2], lengths.clamp(max=2))] * len(PLACES)  # of a layer with fewer tokens
    both = over_samples([few, places], "spectrum")[0]
    np.testing.assert_array_equal(both[1], mean[0])
    assert np.isnan(both[0, ..., 2:]).all()


def test_all_inducing_points_are_measured_however_few_tokens_a_sample_has() -> None:
    block = SimpleNamespace(attention=SimpleNamespace(spec=SimpleNamespace(num_prefix=1)))
    points, tokens = torch.randn(2, 4, 6), torch.randn(2, 9, 6)
    taken = {"input": points, "output": tokens, "stream": tokens, "lengths": torch.tensor([9, 3])}
    ((of_input, of_output, _),) = measure_layers([block], [taken], max_tokens=256, seed=0)
    torch.testing.assert_close(of_input["stable_rank"], measure(points)["stable_rank"])
    torch.testing.assert_close(of_output["stable_rank"][1], measure(tokens[1:, 1:3])["stable_rank"][0])


def test_tokens_of_a_long_sample_are_a_fixed_random_subset() -> None:
    chosen = chosen_tokens(2, 100, 10, seed=3)
    assert len(chosen.unique()) == 10
    assert 2 <= int(chosen.min()) <= int(chosen.max()) < 100
    assert chosen.equal(chosen_tokens(2, 100, 10, seed=3))
    assert not chosen.equal(chosen_tokens(2, 100, 10, seed=4))
    assert chosen_tokens(2, 6, 10, seed=3).tolist() == [2, 3, 4, 5]


def test_a_matrix_that_is_not_finite_measures_nan_instead_of_failing() -> None:
    x = torch.randn(2, 6, 4)
    x[0, 0, 0] = torch.inf
    assert all(values.isnan().all() for values in measure(x).values())


@pytest.mark.parametrize("shape", [(2, 64, 512), (2, 512, 64), (2, 64, 64)])
def test_singular_values_are_those_of_a_decomposition_of_the_whole_matrix(shape: tuple[int, ...]) -> None:
    x = torch.randn(shape, dtype=torch.float64)
    found, whole = singular_values(x), torch.linalg.svdvals(x)
    torch.testing.assert_close(found, whole, rtol=0, atol=3e-14 * float(whole.amax()))
