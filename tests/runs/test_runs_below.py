"""A folder that is no run folder names the runs below it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sliceformer_lab.config.schema import ConfigError
from sliceformer_lab.errors import RunFolderError
from sliceformer_lab.runs.folder import CONFIG, read_config
from sliceformer_lab.runs.names import run_folder


def write_config(folder: Path, moment: int) -> Path:
    folder.mkdir(parents=True)
    (folder / CONFIG).touch()
    os.utime(folder / CONFIG, (moment, moment))
    return folder


def test_a_folder_of_runs_names_the_newest_one_in_place_of_a_run_folder(tmp_path: Path) -> None:
    task = tmp_path / "digits"
    only = write_config(task / "csp" / "b", 200)
    with pytest.raises(RunFolderError, match=f"{task} is not a run folder: it has no {CONFIG}; below it is {only}$"):
        read_config(task)
    write_config(task / "csp" / "c", 100)
    with pytest.raises(ConfigError, match=f"it has no {CONFIG}; below it are 2, the newest {only}$"):
        run_folder(str(tmp_path), "outputs", "digits", "csp", "")


@pytest.mark.parametrize("name", ["missing", "empty", "a.txt"])
def test_a_place_without_runs_names_none(name: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "a.txt").touch()
    with pytest.raises(RunFolderError, match=f"{name} is not a run folder: it has no {CONFIG}$"):
        read_config(tmp_path / name)
