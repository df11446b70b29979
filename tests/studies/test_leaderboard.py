"""The leaderboard shows the committed lines, and no line that was edited."""

from __future__ import annotations

import json
from pathlib import Path

import leaderboard
import pytest


def test_a_seed_that_diverged_counts_as_chance() -> None:
    cell = {"score": 0.985, "scores": [0.985, None], "chance": 0.031, "reason": None}  # of a line that dropped it
    line = {"options": {"subject": "mine", "level": "easy", "seeds": 2}, "probes": {"recall": cell}}
    shown = leaderboard.page_of([{**line, "growth": {"exponent": None}, "digest": "0a1b"}])
    assert "| `mine` | .508 [.031, .985], 1 diverged | 2 |" in shown


def test_a_line_is_a_row_with_its_scores_and_an_edited_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    probes = {"recall": {"score": 0.5, "scores": [0.4, 0.6], "reason": None}, "back": {"score": None, "reason": "long"}}
    line = {"options": {"subject": "mine", "level": "easy", "seeds": 2}, "probes": probes, "growth": {"exponent": 1.25}}
    line["digest"] = leaderboard.digest_line(line)
    shown = leaderboard.page_of([line])
    assert "| `mine` | .500 [.400, .600] | long | 2 | 1.25 |" in shown and "## Level easy" in shown
    monkeypatch.setattr(leaderboard, "LINES", tmp_path / "lines.jsonl")
    leaderboard.LINES.write_text(json.dumps({**line, "growth": {"exponent": 0.5}}) + "\n")
    with pytest.raises(ValueError, match="the line of mine does not fit its digest"):
        leaderboard.read()
