"""What the launcher for Slurm says where there is none. With one: tests/slurm."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.fake_jobs import sweep_of

from sliceformer_lab import errors
from sliceformer_lab.errors import ConfigError, Interrupted
from sliceformer_lab.sweeps import slurm_array
from sliceformer_lab.sweeps.slurm_array import TIME_UP_SIGNAL, ArrayTask, Slurm, comment_of, slurm_states


def test_a_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(errors, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"needs submitit; run pip install 'sliceformer-lab\[slurm\]'"):
        Slurm()


def test_a_machine_without_slurm_differs_from_one_that_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match="this machine has no Slurm"):
        Slurm()
    assert slurm_states(tmp_path) is None
    (tmp_path / "squeue").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "squeue").chmod(0o755)
    assert slurm_states(tmp_path) is None
    lines = [f"7_0 RUNNING {comment_of(tmp_path)}", f"7_1 PENDING {comment_of(tmp_path)}", "8 RUNNING (null)"]
    (tmp_path / "squeue").write_text("#!/bin/sh\n" + "".join(f"echo '{line}'\n" for line in lines))
    assert slurm_states(tmp_path) == {"7_0": "RUNNING", "7_1": "PENDING"}


def test_a_time_that_ends_before_a_place_can_be_saved_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"launcher.time=2: a job saves its place 90 s before .* at least 3 minutes"):
        Slurm(time=2)


@pytest.mark.parametrize("saves", [True, False])
def test_a_job_whose_time_is_up_is_queued_again_only_if_it_saved_a_place(
    saves: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = sweep_of(tmp_path / "sweep", "end=ok")
    last = sweep.place(sweep.jobs[0]) / "checkpoints" / "last.ckpt"
    last.parent.mkdir(parents=True)
    last.touch()
    os.utime(last, (0, 0))  # of an earlier start

    def stop(words: list[str]) -> None:
        if saves:
            last.write_text("a place")
        raise Interrupted("its time is up", TIME_UP_SIGNAL)

    asked = []
    monkeypatch.setattr(slurm_array.subprocess, "run", lambda words, **_: asked.append(words))
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    with pytest.raises(SystemExit):
        ArrayTask(sweep, stop)(sweep.jobs[0])
    assert asked == ([["scontrol", "requeue", "7"]] if saves else [])
