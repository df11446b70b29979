"""The study of random tokens: its table has the known values, and it separates the two kinds of collapse."""

from __future__ import annotations

import pytest
import torch
from collapse import Collapse
from random_tokens import distances, shown

from sliceformer_lab.measures.probe import measure

DRAWS = 4
# The same source, on correlated tokens: stable rank, raw and without the token mean.
CORRELATED = {
    "identity": (1.47, 4.8),
    "csp_shift_only": (1.47, 5.24),
    "csp": (1.47, 5.25),
    "sliceformer": (1.47, 1.03),
    "mha": (None, 3.5),
}
DEEP = {"csp_random_order": 16.8, "csp": 3.8, "csp_shift_only": 16.9, "csp_reference": 10.2}


@pytest.fixture(scope="module")
def study() -> Collapse:
    return Collapse()


def means(study: Collapse, setting: str, operators: list[str]) -> dict[str, dict[str, float]]:
    """Every number of every operator, mean of the draws."""
    draws = [study.one_layer(setting, seed) for seed in range(DRAWS)]
    found = {name: shown(measure(torch.cat([draw[name] for draw in draws]))) for name in operators}
    return {name: {key: float(values.mean()) for key, values in numbers.items()} for name, numbers in found.items()}


def test_on_correlated_tokens_operators_differ_only_with_the_mean_removed(study: Collapse) -> None:
    found = means(study, "correlated", list(CORRELATED))
    for name, (raw, centred) in CORRELATED.items():
        # one draw differs from another by 7 % (softmax 15 %), and how those tokens were drawn is not known exactly
        assert found[name]["stable_rank_mean_removed"] == pytest.approx(centred, rel=0.15), name
        assert raw is None or found[name]["stable_rank"] == pytest.approx(raw, rel=0.04), name


@pytest.mark.parametrize("name", DEEP)
def test_rank_after_eight_random_layers_is_the_known_one(study: Collapse, name: str) -> None:
    ends = [study.deep(name, seed, skip=True)[-1] for seed in range(6)]
    # one draw differs from another by 15 % (csp and csp_reference), 5 % (the others)
    assert float(shown(measure(torch.cat(ends)))["stable_rank"].mean()) == pytest.approx(DEEP[name], rel=0.12)


@pytest.mark.parametrize(
    ("name", "equal_tokens", "one_profile"),
    [("mha", True, True), ("mean", True, True), ("sliceformer", False, True), ("csp_shift_only", False, False)],
)
def test_bare_layers_end_at_equal_tokens_or_at_one_profile_or_at_neither(
    study: Collapse, name: str, equal_tokens: bool, one_profile: bool
) -> None:
    start, *_, end = study.deep(name, 0, skip=False)
    assert min(map(float, distances(start))) > 0.9
    equal, profile = map(float, distances(end))
    assert (equal < 0.01) == equal_tokens
    assert (profile < 0.25) == one_profile
    assert equal_tokens or equal > 0.95


def test_table_has_every_operator_layer_and_setting() -> None:
    found = Collapse(tokens=16, channels=16, heads=2, layers=1, draws=2).findings()
    assert {chart.name for chart in found.charts} == {"collapse_tokens", "collapse_plane"}
    assert found.table.groupby("setting")["layer"].nunique().to_dict() == {
        "random": 1,
        "correlated": 1,
        "layers": 2,
        "bare_layers": 2,
    }
    assert found.table["mean"].notna().all() and (found.table["draws"] == 2).all()
    assert found.table.loc[found.table["control"], "attention"].nunique() == 4
    assert len(found.summary) == 3 and all(table.row_count >= 13 for table in found.summary)
