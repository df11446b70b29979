"""A recorded plan is read back, or refused in one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from sliceformer_lab.config.schema import ConfigError
from sliceformer_lab.runs.recorded_plan import read_same_plan

FACTS = {"rates": [0.1], "seed": 0}


def written(folder: Path, text: str) -> Path:
    file = folder / "map.json"
    file.write_text(text, encoding="utf-8")
    return file


def test_a_plan_with_the_same_facts_is_read_with_what_else_it_records(tmp_path: Path) -> None:
    plan = read_same_plan(written(tmp_path, '{"rates": [0.1], "seed": 0, "time": "now"}'), FACTS, "a map")
    assert plan == FACTS | {"time": "now"}


def test_a_plan_with_other_facts_names_them(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"holds a map that differs in rates, seed; choose another folder="):
        read_same_plan(written(tmp_path, '{"rates": [0.2], "seed": 1}'), FACTS, "a map")


@pytest.mark.parametrize("text", ["{", "[]", "7", '{"rates": [0.1]}', "[" * 100_000])
def test_a_damaged_plan_is_refused_in_one_sentence(text: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"map\.json cannot be read as the plan of a map"):
        read_same_plan(written(tmp_path, text), FACTS, "a map")
