"""A recorded plan is read back, or refused in one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from sliceformer_lab.config.schema import ConfigError
from sliceformer_lab.runs.recorded_plan import record_plan

FACTS = {"protocol": 2, "rates": [0.1], "seed": 0}


@pytest.mark.parametrize("text", ["{", "[]", "7", '{"protocol": 2, "rates": [0.1]}', "[" * 100_000])
def test_a_damaged_plan_is_refused_in_one_sentence(text: str, tmp_path: Path) -> None:
    (tmp_path / "map.json").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=r"map\.json cannot be read as the plan of map"):
        record_plan(tmp_path / "map.json", FACTS, {}, {})


def test_a_new_plan_is_written_with_what_belongs_to_this_start_and_read_back(tmp_path: Path) -> None:
    assert record_plan(tmp_path / "map.json", FACTS, {"time": "now"}, {}) == FACTS | {"time": "now"}
    assert record_plan(tmp_path / "map.json", FACTS, {"time": "later"}, {})["time"] == "now"
    with pytest.raises(ConfigError, match="holds results of map by an earlier protocol, which cannot go on"):
        record_plan(tmp_path / "map.json", FACTS | {"protocol": 3}, {}, {})
