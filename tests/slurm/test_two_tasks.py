"""Two tasks of a real Slurm job train one model."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from support.other_process import wait_for
from support.run_folders import read_summary
from support.runs import SMALL, assert_equal_runs, last_of_each

from sliceformer_lab.__main__ import main
from sliceformer_lab.training.saved.saved_run import load_run

MAX_SECONDS = 280  # seconds that a job may take on a busy machine
RUN = (*SMALL, "optim.warmup_steps=0", "optim.lr=0.002", "encoder.dropout=0")
TWO = ("trainer=ddp", "trainer.accelerator=cpu", "trainer.devices=2", "trainer.precision=32-true")
STEP = ("srun", "--ntasks=2", "--nodes=1")


def train(*words: str) -> list[str]:
    """The command of a small run of two processes with these words."""
    return [sys.executable, "-m", "sliceformer_lab", *last_of_each([*RUN, *TWO, *words])]


@pytest.fixture
def job_name(request: pytest.FixtureRequest) -> Iterator[str]:
    """A name for jobs of this test; those that it leaves are cancelled."""
    name = f"{request.node.name[:20]}-{os.getpid()}"
    yield name
    subprocess.run(["scancel", f"--name={name}"], check=False)


def printed_epoch(process: subprocess.Popen[str]) -> bool:
    """Reads the output up to the first epoch."""
    return any(line.startswith("epoch 1/") for line in process.stdout or ())


def test_two_tasks_write_one_folder_with_the_metrics_of_one_process(tmp_path: Path, job_name: str) -> None:
    sweep = ("-m", "optim.lr=0.002,1e30", f"hydra.sweep.dir={tmp_path}/two", "data.batch_size=8", "optim.epochs=3")
    step = subprocess.run(
        [*STEP, f"--job-name={job_name}", *train(*sweep, "callbacks=default")],
        text=True, capture_output=True, timeout=MAX_SECONDS,
    )  # fmt: skip
    first, second = sorted(file.parent for file in (tmp_path / "two").rglob("summary.json"))
    assert step.stdout.count("this job diverged: the training loss became") == 1 and "Traceback" not in step.stderr
    assert [read_summary(folder)["status"] for folder in (first, second)] == ["ok", "diverged"], step.stderr
    assert read_summary(first)["starts"][0]["processes"] == 2
    assert step.stdout.count("test/accuracy_top5") == 1

    alone = (f"hydra.run.dir={tmp_path}/one", "data.batch_size=16", "optim.epochs=3")  # as many examples in a step
    assert main(last_of_each([*RUN, *alone, "trainer=cpu"])) == 0
    two, one = load_run(first), load_run(tmp_path / "one")
    np.testing.assert_array_equal(two.predictions["test_ids"], one.predictions["test_ids"])
    assert two.summary["metrics"] == pytest.approx(one.summary["metrics"], abs=1e-4)
    np.testing.assert_allclose(two.predictions["test_logits"], one.predictions["test_logits"], atol=1e-3)


def test_each_job_of_the_slurm_launcher_has_two_tasks(tmp_path: Path) -> None:
    launcher = ("launcher=slurm", "launcher.tasks_per_node=2", "launcher.max_parallel=1")
    sweep = subprocess.run(
        train("-m", "optim.lr=0.002,1e30", *launcher, f"hydra.sweep.dir={tmp_path}"),
        text=True, capture_output=True, timeout=MAX_SECONDS,
    )  # fmt: skip
    summaries = [read_summary(file.parent) for file in sorted(tmp_path.glob("*/summary.json"))]
    assert [summary["status"] for summary in summaries] == ["ok", "diverged"], sweep.stderr
    assert [summary["starts"][0]["processes"] for summary in summaries] == [2, 2]


@pytest.mark.parametrize(
    ("killed", "sentence"),
    [("task", "process 2 of 2 was lost, because its Slurm task has ended"), ("process", "process 2 of 2 was ended by")],
)
def test_the_death_of_a_task_ends_the_run_with_one_sentence(
    tmp_path: Path, job_name: str, killed: str, sentence: str
) -> None:
    folder = tmp_path / "run"
    step = subprocess.Popen(
        [*STEP, f"--job-name={job_name}", *train("optim.epochs=500", f"hydra.run.dir={folder}")],
        text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert printed_epoch(step)
    child = next(pid for pid in pids() if f"--join={folder}" in words(pid))
    os.kill(parent(child) if killed == "task" else child, signal.SIGKILL)
    _, errors = step.communicate(timeout=MAX_SECONDS)
    assert step.returncode and "Traceback" not in errors
    assert errors.count("sliceformer-lab: ") == errors.count(sentence) == 1
    assert read_summary(folder)["status"] == "failed"
    assert not [pid for pid in pids() if f"{folder}" in words(pid)]


def test_a_requeued_job_goes_on_within_the_epoch(tmp_path: Path, job_name: str) -> None:
    run = train("optim.epochs=40", "data.batch_size=8", "encoder.dropout=0.1")  # 8 steps an epoch
    script = tmp_path / "job.sh"
    script.write_text(f"#!/bin/sh\nexec srun {' '.join(run)} paths.outputs={tmp_path}/outputs\n")
    log = tmp_path / "job.log"
    submit = ("sbatch", "--parsable", "--requeue", "--open-mode=append", "--ntasks=2", "--nodes=1")
    number = subprocess.run(
        [*submit, f"--job-name={job_name}", f"--output={log}", str(script)], text=True, capture_output=True, check=True
    ).stdout.strip()
    wait_for(lambda: log.exists() and "epoch 1/" in log.read_text(), MAX_SECONDS)
    subprocess.run(["scontrol", "requeue", number], check=True)
    wait_for(lambda: "PENDING" in state(number), MAX_SECONDS)
    subprocess.run(["scontrol", "update", f"job={number}", "StartTime=now"], check=True)  # not in two minutes
    wait_for(lambda: not state(number), MAX_SECONDS)
    (folder,) = {file.parent for file in (tmp_path / "outputs").rglob("summary.json")}
    summary = read_summary(folder)
    assert summary["status"] == "ok", log.read_text()
    assert len(summary["starts"]) == 2 and summary["starts"][1]["from_step"] > 0

    whole = tmp_path / "whole"
    subprocess.run(
        [*STEP, f"--job-name={job_name}", *run, f"hydra.run.dir={whole}"],
        capture_output=True, check=True, timeout=MAX_SECONDS,
    )  # fmt: skip
    assert_equal_runs(whole, folder)


def state(job: str) -> str:
    """The state of a job; empty once it has ended."""
    shown = subprocess.run(["squeue", "-h", "-o", "%T", "-j", job], text=True, capture_output=True)
    return shown.stdout.strip()


def pids() -> list[int]:
    return [int(folder.name) for folder in Path("/proc").iterdir() if folder.name.isdigit()]


def words(pid: int) -> str:
    """The command line of a process."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return ""


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
