"""`make gpu` is rehearsed on the CPU, to its end, and goes on where it was stopped."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import gpu_session
import pytest
from gpu_session import Part, main, parts
from support.official_files import cifar10

TESTS = Path(__file__).resolve().parents[1]


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_every_part_runs_to_its_end_on_a_cpu_and_a_second_call_repeats_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cifar10(tmp_path / "data")
    words = ["device=cpu", f"folder={tmp_path / 'gpu'}", f"data={tmp_path / 'data'}"]
    assert main(words) == 0, capsys.readouterr().out
    names = [part.name for part in parts("cpu", tmp_path / "gpu", "")]
    files = [json.loads((tmp_path / "gpu" / f"{name}.json").read_text()) for name in names]
    assert all(file["exit_code"] == 0 and file["results"] for file in files)
    assert all(file["results"]["numbers"]["skipped"] > 0 for file in files[:3])
    capsys.readouterr()
    assert main(words) == 0
    assert capsys.readouterr().out.splitlines() == [f"{name}: done before" for name in names]


def test_a_part_that_fails_or_takes_too_long_leaves_its_output_and_does_not_stop_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    codes = {"fails": "raise SystemExit('no GPU')", "hangs": "print('began', flush=True); __import__('time').sleep(60)"}
    left = [
        Part(name, [sys.executable, "-c", codes.get(name, "")], 3, tmp_path / "none.json")
        for name in ("fails", "hangs", "ends")
    ]
    monkeypatch.setattr(gpu_session, "parts", lambda *_: left)
    assert main([f"folder={tmp_path}"]) == 2
    fails, hangs, ends = (json.loads((tmp_path / f"{part.name}.json").read_text()) for part in left)
    assert (fails["exit_code"], fails["output"]) == (1, "no GPU\n")
    assert (hangs["exit_code"], hangs["output"]) == (None, "began\n")
    assert ends["exit_code"] == 0


def test_every_file_with_tests_of_a_gpu_belongs_to_a_part(tmp_path: Path) -> None:
    places = [
        gpu_session.ROOT / word for part in parts("cuda", tmp_path, "") for word in part.command if "tests/" in word
    ]
    marked = re.compile(r"mark\.gpu|import (DEVICES|GPU)\b")
    files = [file for file in TESTS.rglob("test_*.py") if marked.search(file.read_text(encoding="utf-8"))]
    left = [file for file in files if not any(file.is_relative_to(place) for place in places)]
    assert len(files) > 5 and left == []
