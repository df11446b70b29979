"""Norms, residuals, ranks and Theorem 1's bound equal the golden vectors of the family `analysis`."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from sliceformer_lab.measures.residual import (
    GELU_LIPSCHITZ,
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

GOLDEN = Path(os.environ.get("GOLDEN_DIR", Path(__file__).parents[1] / "golden"))
BOUNDS = sorted(path.name for path in GOLDEN.glob("analysis__bound_*.npz"))
CENTRES: tuple[Centre, ...] = get_args(Centre)
EXACT, BY_LP = 1e-8, 1e-6  # relative tolerances of the golden README


def load(name: str) -> dict[str, Any]:
    """Arrays of a golden file as tensors, its options as a mapping."""
    with np.load(GOLDEN / name) as file:
        options = json.loads(str(file["options"]))
        return {"options": options} | {k: torch.from_numpy(file[k]) for k in file.files if k != "options"}


def assert_near(ours: Tensor, golden: Tensor, rtol: float) -> None:
    """Equal but for a relative difference; no absolute one is allowed."""
    torch.testing.assert_close(ours, golden, rtol=rtol, atol=0)


@pytest.mark.parametrize("index", range(5))
def test_norms_and_ranks_equal_the_golden_values(index: int) -> None:
    golden = {
        k.removeprefix(f"m{index}_"): v for k, v in load("analysis__matrices.npz").items() if k.startswith(f"m{index}_")
    }
    x: Tensor = golden["x"]
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


@pytest.mark.parametrize("index", range(5))
@pytest.mark.parametrize("centre", ["mean", "median", "midrange"])
def test_residuals_about_a_closed_form_centre_equal_the_golden_values(index: int, centre: Centre) -> None:
    golden = load("analysis__matrices.npz")
    x = golden[f"m{index}_x"]
    rest = x.double() - centre_of(x, centre)  # type: ignore[arg-type]
    assert_near(norm_1(rest), golden[f"m{index}_{centre}_n1"], EXACT)
    assert_near(norm_inf(rest), golden[f"m{index}_{centre}_ninf"], EXACT)
    assert_near(residual(x, centre), golden[f"m{index}_{centre}_n1inf"], EXACT)
    assert_near(relative_residual(x, centre), golden[f"m{index}_{centre}_rel"], EXACT)


@pytest.mark.parametrize("index", range(5))
def test_the_linear_program_finds_the_smallest_row_norm(index: int) -> None:
    golden = load("analysis__matrices.npz")
    x = golden[f"m{index}_x"]
    assert_near(norm_inf(x.double() - centre_of(x, "lp")), golden[f"m{index}_lp_inf_value"], BY_LP)
    assert_near(residual(x, "per_norm"), golden[f"m{index}_per_norm_residual"], BY_LP)


@pytest.mark.parametrize("name", BOUNDS)
def test_bound_and_residuals_per_layer_equal_the_golden_values(name: str) -> None:
    golden = load(name)
    lipschitz = GELU_LIPSCHITZ if golden["options"]["act"] == "gelu" else 1.0
    weights = [w.T for w in golden["w"]]  # the file's layout is (in, out)
    factor = csp_bound_factor(weights, lipschitz)
    assert lipschitz == pytest.approx(float(golden["lam"]), rel=1e-8)
    assert max(float(norm_inf(w)) for w in weights) == pytest.approx(float(golden["beta"]), rel=1e-8)
    assert factor == pytest.approx(float(golden["factor"]), rel=1e-8)
    hidden, depth = _csp_network(golden), golden["options"]["num_layers"]
    torch.testing.assert_close(hidden.float(), golden["hidden"], rtol=0, atol=1e-5)
    for centre in ("mean", "median", "per_norm"):
        tolerance = BY_LP if centre == "per_norm" else EXACT
        layers, bound = residual(hidden, centre), factor * residual(golden["x"], centre)
        assert_near(layers, golden[f"layers_{centre}"], tolerance)
        assert_near(bound, golden[f"rhs_{centre}"], tolerance)
        assert layers.shape == (depth,)
        assert layers[-1] <= bound


def _csp_network(golden: dict[str, Any]) -> Tensor:
    """Hidden states (L, N, C) in float64 of the file's network: project, shift, sort in groups, activate."""
    activation = nn.GELU() if golden["options"]["act"] == "gelu" else nn.ReLU()
    size, x, hidden = golden["options"]["group_size"], golden["x"].double(), []
    for weight in golden["w"].double():
        v = x @ weight
        shifted = torch.stack([v[:, c].roll(int(step)) for c, step in enumerate(golden["shift"])], dim=-1)
        x = activation(shifted.unflatten(0, (-1, size)).sort(1).values.flatten(0, 1))
        hidden.append(x)
    return torch.stack(hidden)


def test_every_centre_is_compared_with_the_files() -> None:
    assert set(CENTRES) == {"mean", "median", "midrange", "lp", "per_norm"}
    assert len(BOUNDS) == 2
