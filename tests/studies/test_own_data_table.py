"""The table of own data holds what its committed runs give."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import own_data_table as table
import pytest
from scipy import stats

from sliceformer_lab.errors import DataError


def test_a_score_stands_by_its_mean_and_both_variances() -> None:
    half = 0.1
    lines = [
        {
            "test": test,
            "num_test": 200,
            "references": [{"name": "forest", "val": 1, "test": 0.8, "low": 0, "high": 2 * half}],
        }
        for test in (0.7, 0.9, 0.95)
    ]
    gain, error = table.standing(lines, "forest", 1)
    assert gain == pytest.approx(0.05)
    over_examples = half / stats.t.ppf(0.975, 49)  # the jackknife leaves out 50 groups
    assert error == pytest.approx(np.sqrt(over_examples**2 + np.var([0.7, 0.9, 0.95], ddof=1) / 3))
    assert table.standing(lines, "forest", -1)[0] == pytest.approx(-0.05)


def test_a_line_of_other_data_is_no_line_of_its_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = table.LINES.read_text("utf-8").splitlines()
    monkeypatch.setattr(table, "LINES", tmp_path / "results.jsonl")
    table.LINES.write_text("\n".join(lines), "utf-8")
    assert len(table.read_lines()) == len(lines)
    other = json.loads(lines[-1])
    other["digests"]["test"] = "d" * 64
    table.LINES.write_text("\n".join([*lines[:-1], json.dumps(other)]), "utf-8")
    with pytest.raises(DataError, match=rf"line {len(lines)}: other test data than in line \d+"):
        table.read_lines()
