"""Files are written whole by one process at a time, and locks are read without writing."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest
from support.injected_signals import in_process
from support.run_folders import write_run

from sliceformer_lab.errors import LabError, RunFolderError
from sliceformer_lab.runs import files
from sliceformer_lab.runs.files import digest_of, files_below, whole_file, write_text
from sliceformer_lab.runs.folder import lock_folder
from sliceformer_lab.runs.job_state import state_of


def test_a_file_that_another_process_writes_is_refused_and_stays_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "WRITE_LOCK_TIMEOUT_S", 0.1)
    file = tmp_path / "table.csv"

    def write_too() -> int:
        with pytest.raises(LabError, match=r"table\.csv is being written by another live process"):
            write_text(file, "theirs")
        return 0

    with whole_file(file) as unfinished:
        unfinished.write_text("ours, first half\n")
        assert in_process(write_too) == 0
        with unfinished.open("a") as end:
            end.write("ours, second half\n")
    assert file.read_text() == "ours, first half\nours, second half\n"
    assert list(tmp_path.iterdir()) == [file]


def test_what_a_killed_process_left_is_no_lock_and_no_content(tmp_path: Path) -> None:
    (tmp_path / "a.unfinished").write_text("a long text of a killed process")
    write_text(tmp_path / "a", "new")
    assert {file.name: file.read_text() for file in tmp_path.iterdir()} == {"a": "new"}


def test_no_link_is_followed_for_writing(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    run = tmp_path / "run"
    run.mkdir()
    for name in ("summary.json", "summary.json.unfinished", ".lock"):
        (run / name).symlink_to(tmp_path / "mine")
    write_text(run / "summary.json", "{}")
    assert (tmp_path / "mine").read_text() == "mine" and (run / "summary.json").read_text() == "{}"
    with pytest.raises(RunFolderError, match="is no lock of a run"), lock_folder(run):
        pass


def test_a_lock_that_is_a_link_to_a_held_one_holds_nothing(tmp_path: Path) -> None:
    with lock_folder(tmp_path / "live"):
        write_run(tmp_path / "run", "mha", 0, 0.5)
        (tmp_path / "run" / ".lock").symlink_to(tmp_path / "live" / ".lock")
        assert state_of(tmp_path / "run").status == "ok" and state_of(tmp_path / "live").status == "running"


def test_the_digest_of_a_folder_is_of_linked_folders_too(tmp_path: Path) -> None:
    plain, linked, other = (tmp_path / name for name in ("plain", "linked", "other"))
    for folder, content in ((plain / "class", "1"), (linked, "1"), (other / "class", "2")):
        folder.mkdir(parents=True)
        (folder / "a.txt").write_text(content)
    (linked / "class").symlink_to(plain / "class")
    (linked / "a.txt").unlink()
    assert digest_of(linked) == digest_of(plain) != digest_of(other)
    (linked / "class").unlink()
    (linked / "class").symlink_to(other / "class")
    assert digest_of(linked) == digest_of(other)
    (plain / "class" / "above").symlink_to(tmp_path)
    assert len(list(files_below(plain))) == 3  # of `plain`, and above it those of `linked` and `other`


def test_a_finished_job_on_a_read_only_disk_is_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, real = tmp_path / "run", os.open
    write_run(folder, "mha", 0, 0.5)
    (folder / ".lock").touch()

    def read_only(path: Any, flags: int, *arguments: Any, **options: Any) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
        return real(path, flags, *arguments, **options)

    monkeypatch.setattr(os, "open", read_only)
    assert state_of(folder).status == "ok"
