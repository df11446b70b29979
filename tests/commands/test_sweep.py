"""The command `sweep`: how far a sweep is, stopping it, trying failed jobs again."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from support.fake_jobs import run_fake, start_elsewhere, statuses, sweep_of
from support.other_process import wait_for
from support.runs import TINY

from sliceformer_lab.__main__ import main
from sliceformer_lab.runs.sweep import read_sweep, write_sweep
from sliceformer_lab.sweeps.queue import Queue
from sliceformer_lab.sweeps.serial_jobs import Serial


def test_status_has_a_line_for_each_job(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sweep = sweep_of(tmp_path / "sweep", "end=ok", "end=failed", "end=ok")
    queue = Queue(sweep, run_fake)
    for _ in range(2):
        job = queue.take()
        try:
            queue.work(job)
        except Exception as error:
            assert str(error) == "it failed"
    assert main(["sweep", "status", str(sweep.folder)]) == 0
    lines = capsys.readouterr().out.splitlines()
    shown = {line.split()[1]: line.split()[3] for line in lines if "-job" in line}
    assert shown == {"0-job": "ok", "1-job": "failed", "2-job": "planned"}
    assert "3 jobs: 1 ok, 1 failed, 1 planned" in lines and lines[-1].startswith("go on, failed jobs too: sweep retry")


def test_retry_runs_the_command_of_the_sweep_with_its_failed_jobs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there").write_text("a file where the data should be")
    words = ["-m", *TINY, "attention=identity,mean", "hydra.sweep.dir=sweep"]
    assert main([*words, "task=image_folder", "data.root=there"]) == 1
    sweep = read_sweep(Path("sweep"))
    assert statuses(sweep) == ["failed", "failed"]
    (tmp_path / "there").unlink()
    os.chdir("/")
    assert main(["sweep", "retry", str(tmp_path / "sweep")]) == 1
    printed = capfd.readouterr()
    assert "2 failed jobs run again: -m encoder=tiny" in printed.out and "does not exist" in printed.out
    assert f"jobs in {tmp_path / 'sweep'} did not finish" in printed.err


def test_cancel_stops_a_serial_sweep_by_a_signal(tmp_path: Path) -> None:
    sweep = sweep_of(tmp_path / "sweep", "seconds=60", "end=ok")
    process = start_elsewhere(sweep, "with signals_as_errors(): Serial().run(Queue(sweep, run_fake))")
    wait_for(lambda: statuses(sweep)[0] == "running")
    assert main(["sweep", "cancel", str(sweep.folder)]) == 0
    process.communicate(timeout=30)
    assert statuses(sweep) == ["interrupted", "planned"]
    Serial().run(Queue(sweep, run_fake))
    assert statuses(sweep) == ["ok", "ok"]


def test_cancel_says_that_slurm_does_not_answer_and_not_that_jobs_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep = sweep_of(tmp_path / "sweep", "end=ok")
    (tmp_path / "squeue").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "squeue").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert main(["sweep", "cancel", str(sweep.folder)]) == 0, "no job was queued in Slurm"
    (sweep.folder / ".slurm").mkdir()
    (sweep.folder / ".slurm" / "jobs.json").write_text(json.dumps({sweep.jobs[0].name: "77_0"}))
    capsys.readouterr()
    assert main(["sweep", "cancel", str(sweep.folder)]) == 1
    printed = capsys.readouterr()
    assert printed.err.startswith("sliceformer-lab: Slurm does not answer") and "stop" not in printed.out


def test_a_job_on_another_machine_is_named_with_its_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep = sweep_of(tmp_path / "sweep", "end=ok")

    def cancel_from_elsewhere(words: list[str]) -> None:
        del words
        monkeypatch.setattr("socket.gethostname", lambda: "elsewhere")
        monkeypatch.setattr(os, "kill", lambda *_: pytest.fail("a process of another machine"))
        assert main(["sweep", "cancel", str(sweep.folder)]) == 1
        monkeypatch.undo()

    Queue(sweep, cancel_from_elsewhere).work(sweep.jobs[0])
    assert f": kill {os.getpid()}" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_a_folder_without_a_plan_is_one_sentence(tmp_path: Path, refused: Callable[..., str]) -> None:
    sentence = refused("sweep", "status", str(tmp_path))
    assert sentence == f"sliceformer-lab: {tmp_path} is not the folder of a sweep: it has no sweep.json\n"
    assert tmp_path.is_dir(), "the folder of a user stays"
    write_sweep(sweep_of(tmp_path / "empty"))
    assert main(["sweep", "status", str(tmp_path / "empty")]) == 0
