"""Norms, residuals, ranks and Theorem 1's bound equal the golden vectors of the family `analysis`."""

from __future__ import annotations

import pytest
import torch
from support.golden_files import Arrays, file_names, load, numbered, operations
from torch import Tensor, nn

from sliceformer_lab.measures.residual import (
    Centre,
    centre_of,
    csp_bound_factor,
    norm_1,
    norm_1_inf,
    norm_inf,
    relative_residual,
    residual,
)
from sliceformer_lab.measures.spectrum import effective_rank, singular_values, stable_rank

ACTIVATIONS: dict[str, nn.Module] = {"relu": nn.ReLU(), "gelu": nn.GELU(), "identity": nn.Identity()}
EXACT, BY_LP = 1e-8, 1e-6  # relative tolerances of the golden README


MATRICES = [
    pytest.param(golden, id=f"{name}-{i}")
    for name in file_names("analysis", "residual_norms_spectrum")
    for i, golden in enumerate(numbered(load(name)[1], "m"))
]


def assert_near(ours: Tensor, golden: Tensor, rtol: float) -> None:
    """Equal but for a relative difference; an absolute one only where the value is zero but for rounding."""
    torch.testing.assert_close(ours, golden, rtol=rtol, atol=1e-13)


@pytest.mark.parametrize("golden", MATRICES)
def test_norms_and_ranks_equal_the_golden_values(golden: Arrays) -> None:
    x = golden["x"]
    values = singular_values(x)
    ours = {
        "n1": norm_1(x),
        "ninf": norm_inf(x),
        "n1inf": norm_1_inf(x),
        "stable_rank": stable_rank(values),
        "effective_rank": effective_rank(values),
    }
    for name, value in ours.items():
        assert_near(value, golden[name], EXACT)
    # the smallest values of a nearly singular matrix carry the rounding of the largest
    torch.testing.assert_close(values, golden["singular_values"], rtol=1e-8, atol=1e-14 * float(values[0]))


@pytest.mark.parametrize("golden", MATRICES)
@pytest.mark.parametrize("centre", ["mean", "median"])
def test_residuals_about_a_closed_form_centre_equal_the_golden_values(golden: Arrays, centre: Centre) -> None:
    x = golden["x"]
    rest = x.double() - centre_of(x, centre)
    assert_near(norm_1(rest), golden[f"{centre}_n1"], EXACT)
    assert_near(norm_inf(rest), golden[f"{centre}_ninf"], EXACT)
    assert_near(residual(x, centre), golden[f"{centre}_n1inf"], EXACT)
    assert_near(relative_residual(x, centre), golden[f"{centre}_rel"], EXACT)


@pytest.mark.parametrize("golden", MATRICES)
def test_the_linear_program_finds_the_smallest_row_norm(golden: Arrays) -> None:
    x = golden["x"]
    assert_near(norm_inf(x.double() - centre_of(x, "lp")), golden["lp_inf_value"], BY_LP)
    assert_near(residual(x, "per_norm"), golden["per_norm_residual"], BY_LP)


@pytest.mark.parametrize("name", file_names("analysis", "theorem1_bound"))
def test_bound_and_residuals_per_layer_equal_the_golden_values(name: str) -> None:
    options, golden = load(name)
    weights = [w.T for w in golden["w"]]  # the file's layout is (in, out)
    factor = csp_bound_factor(weights, float(golden["lam"]))
    assert max(float(norm_inf(w)) for w in weights) == pytest.approx(float(golden["beta"]), rel=1e-8)
    assert factor == pytest.approx(float(golden["factor"]), rel=1e-8)
    hidden = _csp_network(golden, options["group_size"], ACTIVATIONS[options["act"]])
    torch.testing.assert_close(hidden.float(), golden["hidden"], rtol=0, atol=1e-5)
    for centre in ("mean", "median", "per_norm"):
        tolerance = BY_LP if centre == "per_norm" else EXACT
        layers, bound = residual(hidden, centre), factor * residual(golden["x"], centre)
        assert_near(layers, golden[f"layers_{centre}"], tolerance)
        assert_near(bound, golden[f"rhs_{centre}"], tolerance)
        assert layers.shape == (options["num_layers"],)
        assert layers[-1] <= bound


def _csp_network(golden: Arrays, group_size: int, activation: nn.Module) -> Tensor:
    """Hidden states (L, N, C) in float64 of the file's network: project, shift, sort in groups, activate."""
    x, hidden = golden["x"].double(), []
    for weight in golden["w"].double():
        v = x @ weight
        shifted = torch.stack([v[:, c].roll(int(step)) for c, step in enumerate(golden["shift"])], dim=-1)
        x = activation(torch.cat([group.sort(0).values for group in shifted.split(group_size)]))
        hidden.append(x)
    return torch.stack(hidden)


def test_every_operation_has_a_committed_file() -> None:
    assert operations("analysis") == {"residual_norms_spectrum", "theorem1_bound"}
