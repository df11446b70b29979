"""Sweep folders from strangers: what their files name is not run, signalled or written to."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.fake_jobs import sweep_of

from sliceformer_lab.__main__ import main
from sliceformer_lab.commands.sweep import command as sweep_command
from sliceformer_lab.runs.files import write_json
from sliceformer_lab.runs.job_state import read_record
from sliceformer_lab.runs.processes import process_start
from sliceformer_lab.sweeps.queue import Queue
from sliceformer_lab.sweeps.slurm_array import comment_of

COMMANDS = {
    "a package": ["-m", "seed=0,1", "allow_targets=[stranger.]"],
    "a package in zip": ["-m", "zip(seed=[0,1], allow_targets=[[stranger.],[stranger.]])"],
    "a package for the runs of an audit": ["audit", "words=['allow_targets=[stranger.]']"],
    "a folder of options": ["-m", "seed=0,1", "hydra.searchpath=[file://conf]"],
    "a folder of options by a flag": ["-m", "seed=0,1", "--config-dir", "conf"],
    "a run to join": ["-m", "seed=0,1", "--join=/stranger"],
    "a pickle": ["-m", "--experimental-rerun", "config.pickle"],
    "a launcher of Hydra": ["-m", "seed=0,1", "hydra/launcher=joblib"],
    "a callback of Hydra": ["-m", "seed=0,1", "+hydra.callbacks.x._target_=os.system"],
    "a node at another place": ["-m", "attention@hydra.callbacks=mha"],
    "lines of a shell": ["-m", "seed=0,1", "launcher=slurm", "launcher.setup=[touch it-ran]"],
    "a secret": ["-m", "seed=0,1", "tags=['${oc.env:HOME}']"],
    "a command that writes where it likes": ["predict", "resume=run", "output=/precious"],
    "rows": ["sweep.rows=['recipe=x allow_targets=[stranger.]']"],
}
SPY = "open({marker!r}, 'w').close()\nraise ImportError('a module of the named folder')\n"


def foreign_sweep(folder: Path, command: list[str], **facts: object) -> Path:
    """A sweep folder whose plan says that it was started with this command."""
    sweep_of(folder, "end=ok")
    plan = json.loads((folder / "sweep.json").read_text())
    (folder / "sweep.json").write_text(json.dumps(plan | facts | {"command": command}))
    return folder


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_in_a_file_brings_no_code(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: Callable[..., str]
) -> None:
    monkeypatch.setattr(sweep_command.subprocess, "run", lambda *_, **__: pytest.fail("the words of a file ran"))
    folder = foreign_sweep(tmp_path / "sweep", COMMANDS[name])
    assert "sweep.json" in refused("sweep", "retry", str(folder))


def test_what_the_user_allows_replaces_what_the_file_allows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[list[str]] = []

    def run(words: list[str], **_: object) -> SimpleNamespace:
        started.append(words)
        return SimpleNamespace(returncode=0)

    (tmp_path / "mine").mkdir()
    command = ["-m", "seed=0,1", "launcher=local", "launcher.jobs=2", "allow_targets=[stranger.]", "--config-dir=conf"]
    folder = foreign_sweep(tmp_path / "sweep", [*command, "hydra.sweep.dir=elsewhere"])
    monkeypatch.setattr(sweep_command.subprocess, "run", run)
    assert main(["sweep", "retry", str(folder), "allow_targets=[mine.]", "--config-dir", str(tmp_path / "mine")]) == 0
    words = " ".join(started[0])
    assert "launcher=local launcher.jobs=2" in words and "allow_targets=['mine.']" in words
    assert f"file://{tmp_path / 'mine'}" in words and "stranger" not in words and "elsewhere" not in words


def test_modules_of_the_folder_that_a_file_names_are_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    theirs, marker = tmp_path / "theirs", tmp_path / "it-ran"
    theirs.mkdir()
    for module in ("sliceformer_lab", "torch", "numpy", "hydra", "sitecustomize", "json", "stranger"):
        (theirs / f"{module}.py").write_text(SPY.format(marker=str(marker)))
    monkeypatch.setenv("PYTHONPATH", f".{':'}{Path(sweep_command.__file__).parents[3]}")
    monkeypatch.chdir(tmp_path)
    words = ["-m", "seed=0", "+callbacks.x._target_=stranger.X", "allow_targets=[stranger.]"]
    assert main([*words, f"hydra.sweep.dir={tmp_path / 'sweep'}"]) == 1
    plan = json.loads((tmp_path / "sweep" / "sweep.json").read_text())
    (tmp_path / "sweep" / "sweep.json").write_text(json.dumps(plan | {"current_folder": str(theirs)}))
    capfd.readouterr()
    assert main(["sweep", "retry", str(tmp_path / "sweep"), "allow_targets=[stranger.]"]) == 1
    assert not marker.exists()
    refused = "stranger.X cannot be loaded (No module named 'stranger')"
    assert capfd.readouterr().out.count(refused) == 2  # when it ran, and in the table


def test_an_error_with_markup_and_control_characters_is_shown_as_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep = sweep_of(tmp_path / "sweep", "end=ok", "end=ok")
    errors = ["[/red] given [1, 2], :bomb: [bold]", "\x1b[2J\x07cleared\x9b"]
    for job, error in zip(sweep.jobs, errors, strict=True):
        sweep.place(job).mkdir()
        (sweep.place(job) / "job.json").write_text(json.dumps({"status": "failed", "error": error}))
    assert main(["sweep", "status", str(sweep.folder)]) == 0
    printed = capsys.readouterr().out
    assert errors[0] in printed and r"\x1b[2J\x07cleared\x9b" in printed and "\x1b" not in printed
    assert main(["report", str(tmp_path / "a\x1bb")]) == 1
    assert r"a\x1bb" in capsys.readouterr().err


WRONG = {
    "another process": {"pid": os.getppid()},
    "all processes": {"pid": -1},
    "the group": {"pid": 0},
    "the first process": {"pid": True},
    "a text": {"pid": "1; true"},
    "an earlier process of that number": {"process_start": "0"},
    "no start": {"process_start": None},
}


@pytest.mark.parametrize("name", WRONG)
def test_cancel_signals_no_process_but_the_one_that_holds_the_job(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: Callable[..., str]
) -> None:
    sweep = sweep_of(tmp_path / "sweep", "end=ok")
    monkeypatch.setattr(os, "kill", lambda *_: pytest.fail("a process was signalled"))

    def cancel_with_a_changed_record(words: list[str]) -> None:
        record = read_record(sweep.place(sweep.jobs[0]))
        changed = record | WRONG[name]
        if "process_start" not in WRONG[name]:
            changed["process_start"] = process_start(os.getppid()) if name == "another process" else "0"
        write_json(sweep.place(sweep.jobs[0]) / "job.json", changed)
        sentence = refused("sweep", "cancel", str(sweep.folder))
        assert "0-job" in sentence and "was not signalled" in sentence

    Queue(sweep, cancel_with_a_changed_record).work(sweep.jobs[0])


def test_cancel_ends_no_job_in_slurm_that_this_sweep_did_not_queue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: Callable[..., str]
) -> None:
    sweep = sweep_of(tmp_path / "sweep", "end=ok", "end=ok")
    programs, queued = tmp_path / "bin", comment_of(sweep.folder)
    programs.mkdir()
    lines = [f"7_0 RUNNING {queued}", "8 RUNNING (null)", f"9 RUNNING {comment_of(tmp_path)}"]
    (programs / "squeue").write_text("#!/bin/sh\n" + "".join(f"echo '{line}'\n" for line in lines))
    (programs / "scancel").write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/ended\n')
    for program in programs.iterdir():
        program.chmod(0o755)
    monkeypatch.setenv("PATH", str(programs), prepend=":")
    (sweep.folder / ".slurm").mkdir()
    for other in ("8", "9"):
        numbers = {sweep.jobs[0].name: "7_0", sweep.jobs[1].name: other}
        (sweep.folder / ".slurm" / "jobs.json").write_text(json.dumps(numbers))
        assert f"Slurm job {other} was not queued by this sweep" in refused("sweep", "cancel", str(sweep.folder))
    assert (tmp_path / "ended").read_text() == "7_0\n7_0\n"


@pytest.mark.parametrize("name", ["..", ".", "", "a/b", "a\x1b[2Jb", "a\nb", ".hidden"])
def test_a_job_is_a_folder_in_its_sweep(name: str, tmp_path: Path, refused: Callable[..., str]) -> None:
    folder = foreign_sweep(tmp_path / "sweep", ["-m"], jobs=[{"name": name, "words": []}])
    for action in ("status", "cancel", "retry"):
        sentence = refused("sweep", action, str(folder))
        assert "is not the name of a folder" in sentence and "\x1b" not in sentence
