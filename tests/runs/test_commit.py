"""Tests of the commit that a run records."""

from __future__ import annotations

import importlib
import re
import subprocess
from pathlib import Path

import pytest

from sliceformer_lab.runs import commit
from sliceformer_lab.runs.commit import commit_of
from sliceformer_lab.sweeps import fork_server, loaded_code


def make_repository(folder: Path, *files: str) -> None:
    """A repository with one commit of these files."""
    for name in files:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("one\n", encoding="utf-8")
    author = ("-c", "user.name=a", "-c", "user.email=a@b.c")
    for words in (("init", "-q"), ("add", "."), (*author, "commit", "-q", "-m", "One")):
        subprocess.run(["git", *words], cwd=folder, check=True)


def test_only_changes_of_the_code_make_a_commit_dirty(tmp_path: Path) -> None:
    code = tmp_path / "sliceformer_lab" / "runs" / "commit.py"
    make_repository(tmp_path, "sliceformer_lab/runs/commit.py", "studies/results.jsonl", "conf/config.yaml")
    (tmp_path / "studies" / "results.jsonl").write_text("two\n", encoding="utf-8")
    assert re.fullmatch("[0-9a-f]{12}", first := commit_of(code) or "")
    (tmp_path / "conf" / "config.yaml").write_text("two\n", encoding="utf-8")
    versions = [commit_of(code) or ""]
    for text in ("three\n", "four\n"):
        (tmp_path / "sliceformer_lab" / "mine.py").write_text(text, encoding="utf-8")  # a new file, not added
        versions.append(commit_of(code) or "")
    assert all(re.fullmatch(f"{first}-dirty-[0-9a-f]{{8}}", version) for version in versions)
    assert len({*versions}) == 3, "each state of the code has a name of its own"


def test_code_outside_a_repository_or_copied_into_another_one_has_no_commit(tmp_path: Path) -> None:
    assert commit_of(tmp_path / "commit.py") is None
    make_repository(tmp_path, "analysis.py")
    copy = tmp_path / ".venv" / "sliceformer_lab" / "commit.py"
    copy.parent.mkdir(parents=True)
    copy.write_text("one\n", encoding="utf-8")
    assert commit_of(copy) is None


def test_the_jobs_of_a_sweep_have_the_commit_of_the_code_that_it_has_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    assert loaded_code.__name__ in fork_server.LIBRARIES
    commit.git_commit.cache_clear()
    for now in ("before", "after"):  # a commit while the sweep runs
        monkeypatch.setattr(commit, "commit_of", lambda file, now=now: now)
        if now == "before":
            importlib.reload(loaded_code)  # as the process does that jobs are forked from
    assert commit.git_commit() == "before"
    commit.git_commit.cache_clear()
