"""The study of CSP's Theorem 2: its errors agree with sums by hand, and its verdict follows from the errors."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
from grouped_sinkhorn import grouped_sinkhorn
from study_command import run_study
from theorem2 import CONTROLS, SINKHORN, Theorem2

TAUS = (0.1, 1.0, 0.01)


@pytest.fixture(scope="module")
def study() -> Theorem2:
    return Theorem2(tokens=8, channels=3, group_sizes=(2, 8), taus=TAUS, iterations=(300, 2), draws=2)


@pytest.fixture(scope="module")
def table(study: Theorem2) -> pd.DataFrame:
    return study.findings().table


@pytest.mark.parametrize("size", [2, 8])
def test_error_falls_with_the_temperature_on_spaced_values(table: pd.DataFrame, size: int) -> None:
    rows = table[(table["values"] == "spaced") & (table["group_size"] == size) & (table["iterations"] == 300)]
    high, middle, low = rows["mean"]
    assert rows["tau"].tolist() == sorted(TAUS, reverse=True) and high > middle > low
    assert low < 0.01 < 0.2 < high


def test_error_is_the_distance_from_ranks_put_in_order_by_hand(study: Theorem2) -> None:
    v = study.draw("normal", 5)
    expected = v.clone()
    for first in range(0, 8, 2):
        window = v[0, first : first + 2]
        ranks = window[:, 0].argsort().argsort()
        expected[0, first : first + 2] = window.sort(0).values[ranks]
    rows = [row for row in study._rows("normal", 5) if row["group_size"] == 2]
    ours = {row["tau"]: row["error"] for row in rows if row["operator"] == SINKHORN and row["iterations"] == 300}
    for tau, error in ours.items():
        y = grouped_sinkhorn(v, group_size=2, tau=tau, iterations=300)
        assert error == pytest.approx(float((y - expected)[..., 1:].norm() / expected[..., 1:].norm()))
    controls = {row["operator"]: row["error"] for row in rows if row["operator"] != SINKHORN}
    assert set(controls) == set(CONTROLS)
    assert controls["identity"] == pytest.approx(float((v - expected)[..., 1:].norm() / expected[..., 1:].norm()))


@pytest.mark.parametrize(
    ("curve", "verdict"),
    [
        ([0.5, 0.1, 0.001], "converges: 0.001 at tau=0.01"),
        ([0.5, 0.1, 0.05], "still falling: 0.05 at tau=0.01"),
        ([0.5, 0.1, 0.2], "falls to 0.1 at tau=0.1, then rises: 300 iterations are too few"),
        ([0.5, 0.005, 0.006], "falls to 0.005 at tau=0.1, then rises: 300 iterations are too few"),
    ],
    ids=["converged", "falling", "risen", "risen a little"],
)
def test_verdict_follows_from_the_errors(study: Theorem2, curve: list[float], verdict: str) -> None:
    rows = [
        {"values": "spaced", "group_size": 2, "operator": SINKHORN, "tau": tau, "iterations": 300, "mean": error}
        for tau, error in zip(sorted(TAUS, reverse=True), curve, strict=True)
    ]
    assert study.verdict(pd.DataFrame(rows), "spaced", 2) == verdict


def test_command_writes_table_facts_and_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = f"--tokens 8 --channels 3 --group-sizes 2 4 --taus 1 0.1 --iterations 5 --draws 1 --output {tmp_path}"
    run_study("theorem2", Theorem2, None, words.split())
    assert {file.name for file in tmp_path.iterdir()} == {f"theorem2.{e}" for e in ("csv", "json", "png", "pdf")}
    facts = json.loads((tmp_path / "theorem2.json").read_text())
    assert facts["options"]["group_sizes"] == [2, 4] and len(facts["verdicts"]) == 4
    assert str(tmp_path / "theorem2.csv") in capsys.readouterr().out
