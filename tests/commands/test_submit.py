"""An attention is submitted as one line, which another machine repeats; an edited line is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pytest
from test_changed_operators import CODE

from sliceformer_lab.__main__ import main
from sliceformer_lab.commands.submit.submission import digest_line

SMALL = ("probe=recall", "level=easy", "seeds=1", "sizes=[16,32]")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_an_operator_of_somebody_else_is_one_line_that_verify_repeats(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "own" / "attention").mkdir(parents=True)
    (tmp_path / "reverse.py").write_text(CODE)
    (tmp_path / "own" / "attention" / "reverse.yaml").write_text("# Mirrors the tokens.\n_target_: reverse.Reverse\n")
    monkeypatch.chdir(tmp_path)
    trusted = ("--config-dir", "own", "allow_targets=[reverse.]")
    assert main(["submit", *trusted, "attention=reverse", *SMALL, "folder=mine"]) == 0
    file = tmp_path / "mine" / "submission.jsonl"
    (line,) = [json.loads(text) for text in file.read_text().splitlines()]
    assert len(line["rules"]) > 10 and line["probes"]["recall"]["score"] < 0.5
    assert line["growth"]["seconds"].keys() == {"16", "32"} and len(line["data"]) == 1
    assert "reverse" in line["sources"] and line["digest"] == digest_line(line)
    began = datetime.fromisoformat(line["growth"]["machine"]["started"]).timestamp()
    assert began <= (tmp_path / "mine" / "growth" / "results.csv").stat().st_mtime, "its load is that before the timing"
    line["growth"]["exponent"] = 1e3  # which no machine repeats
    file.write_text(json.dumps({**line, "digest": digest_line(line)}) + "\n")
    assert main(["verify", *trusted, str(file), "folder=again"]) == 1
    assert "the line of reverse is not repeated here: exponent of time" in capfd.readouterr().err
    again = json.loads((tmp_path / "again" / "submission.jsonl").read_text())
    for subject in ("node", "sources", "rules", "data", "probes", "options"):
        assert again[subject] == line[subject]


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"format": 1, "digest": "0", "options": {}}', "no line"])
def test_a_line_that_submit_did_not_write_is_refused_before_anything_runs(
    text: str, tmp_path: Path, refused: Callable[..., str]
) -> None:
    (tmp_path / "line.jsonl").write_text(text)
    assert "line.jsonl" in refused("verify", str(tmp_path / "line.jsonl"), f"folder={tmp_path / 'again'}")
    assert not list((tmp_path / "again").glob("*"))
