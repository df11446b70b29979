"""An array of a sweep's jobs on a real Slurm, where everything goes wrong that can, and the same command again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.other_process import wait_for
from support.runs import assert_equal_runs

from sliceformer_lab.runs.collect import collect
from sliceformer_lab.runs.job_state import JobState, read_record, state_of
from sliceformer_lab.runs.sweep import PlannedJob, Sweep, read_sweep
from sliceformer_lab.sweeps.slurm_array import slurm_jobs, slurm_numbers

PROGRAM = [sys.executable, "-m", "sliceformer_lab"]
SMALL = ["encoder=tiny", "callbacks=minimal", "pictures=false", "reference=null", "data.limit_train=320"]
SWEEP = [
    *("-m", *SMALL, "optim.epochs=40", "callbacks.checkpoints.every_minutes=0.01", "attention=mha,csp,identity"),
    *("seed=0,1,2,3", "launcher=slurm", "launcher.gres=gpu:1", "launcher.time=10", "hydra.sweep.dir=sweep"),
]


def end_of(process: subprocess.Popen[str]) -> str:
    """What a process prints until its end. Jobs that Slurm queues again start at once, not minutes later."""
    while process.poll() is None:
        start_now()
        time.sleep(2)
    return process.stdout.read()


def start_now() -> None:
    """Lets Slurm start what it has queued again, without its delay."""
    for number, job in (slurm_jobs() or {}).items():
        if job.state == "PENDING":
            subprocess.run(["scontrol", "update", f"JobId={number}", "StartTime=now"], capture_output=True)


def jobs_that_train(sweep: Sweep) -> list[PlannedJob]:
    """The jobs that run and have a checkpoint."""
    return [
        job
        for job in sweep.jobs
        if state_of(sweep.place(job)).status == "running"
        and (sweep.place(job) / "checkpoints" / "last.ckpt").is_file()
        and read_record(sweep.place(job)).get("pid")
    ]


def states(sweep: Sweep) -> dict[str, JobState]:
    return {job.name: state_of(sweep.place(job)) for job in sweep.jobs}


def ended_by_slurm(sweep: Sweep) -> set[str]:
    """Jobs that Slurm ended: by SIGTERM, or by SIGKILL on a machine that is too busy to react. Not by a time limit."""
    stopped = {name: state for name, state in states(sweep).items() if state.status in ("interrupted", "killed")}
    return {name for name, state in stopped.items() if "SIGTERM" in (state.error or "SIGTERM")}


def preempt(sweep: Sweep) -> None:
    """Lets an urgent job take all cores of the node, and waits until that has ended one more job of the sweep."""
    wait_for(lambda: jobs_that_train(sweep))
    before = ended_by_slurm(sweep)
    cores = str(os.cpu_count())
    subprocess.run(["sbatch", "-p", "urgent", "-c", cores, "-o", "/dev/null", "--wrap", "sleep 2"], check=True)
    wait_for(lambda: ended_by_slurm(sweep) - before)


@pytest.mark.timeout(900)
def test_the_same_command_finishes_an_array_whatever_happened_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    first = subprocess.Popen([*PROGRAM, *SWEEP], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    wait_for(lambda: (Path("sweep") / ".slurm" / "jobs.json").is_file())
    sweep, numbers = read_sweep(Path("sweep")), slurm_numbers(Path("sweep"))
    assert len(numbers) == 12

    wait_for(lambda: jobs_that_train(sweep))
    killed = jobs_that_train(sweep)[0]
    os.kill(read_record(sweep.place(killed))["pid"], signal.SIGKILL)
    wait_for(lambda: state_of(sweep.place(killed)).status == "killed")

    wait_for(lambda: [job for job in jobs_that_train(sweep) if job != killed])
    cancelled = next(job for job in jobs_that_train(sweep) if job != killed)
    subprocess.run(["scancel", numbers[cancelled.name]], check=True)
    wait_for(lambda: state_of(sweep.place(cancelled)).status != "running")

    preempt(sweep)

    folder = Path(os.environ["SLURM_CONF"]).parent
    controller = int(next(folder.glob("*ctld.pid")).read_text())
    os.kill(controller, signal.SIGTERM)  # SIGKILL may lose its last numbers, and it drains a node with a number twice
    wait_for(lambda: not Path(f"/proc/{controller}").exists())
    time.sleep(3)
    subprocess.run(["slurmctld", "-f", os.environ["SLURM_CONF"]], check=True)

    said = end_of(first)
    ended = {name: state.status for name, state in states(sweep).items()}
    assert first.returncode == 1 and "the same command goes on with 2" in said, said
    assert ended.pop(killed.name) == "killed" and ended.pop(cancelled.name) in ("interrupted", "killed")
    assert set(ended.values()) == {"ok"}, "the preempted jobs went on by themselves"
    before = {job.name: (sweep.place(job) / "summary.json").read_bytes() for job in sweep.jobs if job.name in ended}

    again = subprocess.run([*PROGRAM, *SWEEP], capture_output=True, text=True, timeout=600)
    assert again.returncode == 0, again.stdout + again.stderr
    assert {state.status for state in states(sweep).values()} == {"ok"}
    assert {name: (Path("sweep") / name / "summary.json").read_bytes() for name in before} == before, "none ran twice"
    for job in sweep.jobs:
        summary = json.loads((sweep.place(job) / "summary.json").read_text())
        starts = summary["starts"]
        assert [start["status"] for start in starts].count("ok") == 1 and starts[-1]["status"] == "ok"
        if job in (killed, cancelled):
            assert len(starts) > 1 and starts[-1]["from_step"] > 0, "it went on from its checkpoint"
    found = collect(Path("sweep"))
    assert len(found.runs) == 12 and not found.missing and not found.unreadable
    assert not [job for job in sweep.jobs if "Traceback" in (sweep.place(job) / "job.log").read_text()]
    assert not set(slurm_numbers(sweep.folder).values()) & set(slurm_jobs() or {})


def test_cancel_ends_the_jobs_of_this_sweep_and_no_other_of_this_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["-m", *SMALL, "optim.epochs=400", "seed=0,1", "launcher=slurm", "launcher.wait=false"]
    subprocess.run([*PROGRAM, *words, "hydra.sweep.dir=own"], check=True)
    wrapped = ["sbatch", "--parsable", "-o", "/dev/null", "--wrap", "sleep 300"]
    other = subprocess.run(wrapped, capture_output=True, text=True, check=True).stdout.strip()
    numbers = slurm_numbers(Path("own"))
    try:
        first, second = sorted(numbers)
        (tmp_path / "own" / ".slurm" / "jobs.json").write_text(json.dumps(numbers | {second: other}))
        done = subprocess.run([*PROGRAM, "sweep", "cancel", "own"], capture_output=True, text=True)
        assert done.returncode == 1 and f"Slurm job {other} was not queued by this sweep" in done.stderr, done.stderr
        wait_for(lambda: numbers[first] not in (slurm_jobs() or {}))
        assert {other, numbers[second]} <= set(slurm_jobs() or {})
    finally:
        subprocess.run(["scancel", other, *numbers.values()], check=True)


def test_what_slurm_refuses_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["-m", *SMALL, "seed=0,1", "launcher=slurm", "launcher.partition=nowhere"]
    said = subprocess.run([*PROGRAM, *words], capture_output=True, text=True)
    assert said.returncode == 1 and said.stderr.count("\n") == 1
    assert "Slurm refuses the jobs (" in said.stderr and "partition" in said.stderr


def test_a_job_whose_time_is_up_is_queued_again_and_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = [*SMALL, "optim.epochs=60", "attention=csp", "launcher=slurm", "hydra.sweep.dir=one"]
    process = subprocess.Popen([*PROGRAM, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    wait_for(lambda: (Path("one") / "sweep.json").is_file())
    sweep = read_sweep(Path("one"))
    wait_for(lambda: jobs_that_train(sweep))
    number = slurm_numbers(sweep.folder)[sweep.jobs[0].name]
    subprocess.run(["scancel", "--signal=USR2", number], check=True)  # as Slurm does before the end of a job's time
    said = end_of(process)
    assert process.returncode == 0, said
    starts = json.loads((sweep.place(sweep.jobs[0]) / "summary.json").read_text())["starts"]
    assert [start["status"] for start in starts] == ["interrupted", "ok"] and starts[1]["from_step"] > 0


@pytest.mark.timeout(1200)
def test_a_drained_node_and_a_preemption_change_no_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["-m", *SMALL, "optim.epochs=200", "callbacks.checkpoints.every_minutes=0.01", "attention=csp", "seed=0,1"]
    array = ["launcher=slurm", "launcher.time=3", "launcher.max_parallel=1", "hydra.sweep.dir=array"]
    process = subprocess.Popen([*PROGRAM, *words, *array], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    wait_for(lambda: (Path("array") / ".slurm" / "jobs.json").is_file())
    sweep, numbers = read_sweep(Path("array")), slurm_numbers(Path("array"))
    node = subprocess.run(["sinfo", "-h", "-o", "%n"], capture_output=True, text=True, check=True).stdout.split()[0]

    def set_node(*facts: str) -> None:
        subprocess.run(["scontrol", "update", f"NodeName={node}", *facts], check=True)

    wait_for(lambda: jobs_that_train(sweep))
    drained = jobs_that_train(sweep)[0]
    set_node("State=DRAIN", "Reason=test")
    try:
        subprocess.run(["scontrol", "requeue", numbers[drained.name]], check=True)
        wait_for(lambda: ended_by_slurm(sweep))
        time.sleep(5)
        assert not jobs_that_train(sweep), "nothing starts on a drained node"
    finally:
        set_node("State=RESUME")
    wait_for(lambda: start_now() or jobs_that_train(sweep), seconds=300)
    preempt(sweep)
    said = end_of(process)  # and each start has 90 seconds or less until its time is up
    assert process.returncode == 0, said

    local = subprocess.run([*PROGRAM, *words, "launcher=serial", "hydra.sweep.dir=local"], capture_output=True)
    assert local.returncode == 0
    reasons: list[str] = []
    for job in sweep.jobs:
        starts = json.loads((sweep.place(job) / "summary.json").read_text())["starts"]
        reasons += [start["status"] for start in starts]
        assert_equal_runs(sweep.place(job), Path("local") / job.name, history="killed" not in reasons)
    assert len(reasons) >= 4, "two jobs, a drained node and a preemption; a slow machine reaches the time limit too"


@pytest.mark.timeout(600)
def test_an_audit_comes_to_its_verdict_by_arrays(tmp_path: Path) -> None:
    task = ["task=probe_back", "data.level=easy", "data.num_test=256", "optim.steps=100", "callbacks=minimal"]
    own = ["attention=mha", "against=identity", "rates=[3e-3]", "tuning_seeds=[0,1]", "seeds=6", "axes=params"]
    places = [f"folder={tmp_path / 'audit'}", f"paths.data={tmp_path}", "launcher=slurm", "launcher.time=10"]
    done = subprocess.run([*PROGRAM, "audit", *own, *task, *places], capture_output=True, text=True, timeout=500)
    assert done.returncode == 3, done.stdout + done.stderr  # 3: no verdict, because one row has not learned
    assert "mha learns this task" in done.stdout and "identity in this form did not" in done.stdout
    assert slurm_numbers(tmp_path / "audit" / "runs")
