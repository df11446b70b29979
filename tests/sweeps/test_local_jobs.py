"""Several jobs at once on this machine, in real processes."""

from __future__ import annotations

import os
import threading
import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from support.fake_jobs import run_fake, start_elsewhere, starts_of, statuses, sweep_of
from support.other_process import run_python, wait_for
from support.run_folders import read_summary
from support.runs import TINY, last_of_each

from sliceformer_lab.__main__ import main
from sliceformer_lab.errors import ConfigError, Interrupted
from sliceformer_lab.runs.job_state import OUTPUT, read_record
from sliceformer_lab.runs.sweep import PlannedJob
from sliceformer_lab.sweeps.board import JobBoard, last_progress
from sliceformer_lab.sweeps.local_jobs import LocalLauncher, visible_gpus
from sliceformer_lab.sweeps.plan import SweepPlan
from sliceformer_lab.sweeps.preview import preview
from sliceformer_lab.sweeps.queue import CANCELLED, Queue
from sliceformer_lab.training.processes.signals import signals_as_errors


def test_jobs_end_as_they_would_alone_whatever_happens_to_the_others(tmp_path: Path) -> None:
    ends = ("ok", "killed", "failed", "ok", "diverged", "ok")
    sweep = sweep_of(tmp_path / "sweep", *(f"end={end}" for end in ends))
    assert LocalLauncher(jobs=2).run(Queue(sweep, run_fake))
    assert statuses(sweep) == ["ok", "killed", "failed", "ok", "diverged", "ok"]
    assert "this job failed: it failed" in (sweep.place(sweep.jobs[2]) / OUTPUT).read_text()
    processes = {line.split()[0] for job in sweep.jobs for line in starts_of(sweep.place(job))}
    assert len(processes) == 6 and str(os.getpid()) not in processes
    assert LocalLauncher(jobs=2).run(Queue(sweep, run_fake))
    assert statuses(sweep) == ["ok", "ok", "failed", "ok", "diverged", "ok"]


def test_a_sweep_that_runs_one_job_at_a_time_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setattr("sliceformer_lab.sweeps.local_jobs.num_cores", lambda: 2)
    why = "one job at a time: launcher.jobs=auto counts two cores a job of 2; launcher.jobs=2 runs two"
    assert (LocalLauncher().places, LocalLauncher().remark, LocalLauncher(jobs=1).remark) == (1, why, "")
    job = PlannedJob("0-digits-csp-0a1b2c", ("task=digits",))
    plan = SweepPlan(tmp_path, (job,), {}, {}, None, "full", tmp_path, {}, ())
    assert f"  {why}" in list(preview(plan, LocalLauncher(), lambda words: (1.0, 1)))


def test_two_starts_at_once_share_the_jobs(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    sweep = sweep_of(tmp_path / "sweep", *["seconds=0.2"] * 6)
    other = threading.Thread(target=lambda: LocalLauncher(jobs=2).run(Queue(sweep, run_fake)))
    other.start()
    LocalLauncher(jobs=1).run(Queue(sweep, run_fake))
    other.join()
    assert statuses(sweep) == ["ok"] * 6
    assert [len(starts_of(sweep.place(job))) for job in sweep.jobs] == [1] * 6
    assert "6 of 6 jobs have ended" in capfd.readouterr().out


def test_the_board_counts_a_job_once_even_if_another_process_ran_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep = sweep_of(tmp_path / "sweep", "end=ok", "end=ok", "end=ok")
    first, second, _ = sweep.jobs
    board = JobBoard(sweep, places=2)
    board.begin(first)
    board.begin(second)
    for job in (first, second):  # both end before this process looks
        Queue(sweep, run_fake).work(job)
    for job in (first, second):
        board.end(job)
    printed = capsys.readouterr().out
    assert printed.count("2 of 3 jobs have ended") == 2


def test_a_cancelled_sweep_stops_its_jobs_and_goes_on_later(tmp_path: Path) -> None:
    sweep = sweep_of(tmp_path / "sweep", "seconds=60", "seconds=60", "end=ok")
    queue = Queue(sweep, run_fake)

    def cancel() -> None:
        wait_for(lambda: all(starts_of(sweep.place(job)) for job in sweep.jobs[:2]))
        (sweep.folder / CANCELLED).write_text(str(time.time()))

    threading.Thread(target=cancel).start()
    began = time.monotonic()
    with signals_as_errors(), pytest.raises(Interrupted, match="sweep cancel"):
        LocalLauncher(jobs=2).run(queue)
    assert time.monotonic() - began < 30
    assert statuses(sweep) == ["interrupted", "interrupted", "planned"]
    assert read_record(sweep.place(sweep.jobs[0]))["error"] == "stopped by SIGTERM"


def test_jobs_end_with_the_process_of_the_sweep_even_if_it_is_killed(tmp_path: Path) -> None:
    sweep = sweep_of(tmp_path / "sweep", "seconds=60", "seconds=60")
    process = start_elsewhere(sweep, "LocalLauncher(jobs=2).run(Queue(sweep, run_fake))")
    wait_for(lambda: all(starts_of(sweep.place(job)) for job in sweep.jobs))
    process.kill()
    process.communicate(timeout=20)
    wait_for(lambda: statuses(sweep) == ["killed", "killed"])


def test_each_place_has_gpus_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6,7")
    assert visible_gpus() == ["4", "5", "6", "7"]
    sweep = sweep_of(tmp_path / "sweep", *["seconds=0.3"] * 4)
    LocalLauncher(jobs=2, gpus=2).run(Queue(sweep, run_fake))
    seen = {line.split()[2] for job in sweep.jobs for line in starts_of(sweep.place(job))}
    assert seen == {"4,5", "6,7"}
    with pytest.raises(ConfigError, match="there are 4 GPUs, for at most 2 jobs"):
        LocalLauncher(jobs=3, gpus=2)


def test_omp_num_threads_sets_the_threads_of_every_library_of_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "5")
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    assert LocalLauncher(jobs=1).variables == {
        "OMP_NUM_THREADS": "3",
        "MKL_NUM_THREADS": "3",  # torch takes this one first
        "OPENBLAS_NUM_THREADS": "5",
    }
    assert set(LocalLauncher(jobs=1, threads=2).variables.values()) == {"2"}


UNNEEDED = {  # by a run of digits; Lightning's torchmetrics imports matplotlib and scipy itself
    *("joblib", "rdkit", "sklearn", "timm", "torch_geometric", "wandb"),
    # torchmetrics imports transformers where it is installed, which imports these
    *(() if find_spec("transformers") else ("huggingface_hub", "tokenizers")),
}


def test_a_forked_job_equals_its_recorded_command_in_a_process_of_its_own_bit_for_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = last_of_each([*TINY, "attention=mha", "callbacks=default"])
    assert main(["-m", *words, "launcher=local", "launcher.jobs=2", "hydra.sweep.dir=together"]) == 0
    (forked,) = Path("together").glob("0-*")
    recorded = read_summary(forked)["command"]
    assert "attention=mha" in recorded
    alone = run_python("-X", "importtime", "-m", "sliceformer_lab", *recorded, "hydra.run.dir=alone")
    assert alone.returncode == 0, alone.stderr
    with np.load(forked / "predictions.npz") as ours, np.load("alone/predictions.npz") as theirs:
        assert all(np.array_equal(ours[name], theirs[name]) for name in theirs.files)
    metrics = [read_summary(folder)["metrics"] for folder in (forked, Path("alone"))]
    assert metrics[0] == metrics[1]
    imported = {line.rpartition("|")[2].strip() for line in alone.stderr.splitlines()}
    assert {"torch", "pytorch_lightning"} <= imported
    assert sorted(imported & UNNEEDED) == [], "every run would wait for these"


def test_the_table_reads_how_far_a_run_is_from_what_it_prints(tmp_path: Path) -> None:
    file = tmp_path / OUTPUT
    assert last_progress(file) == ("", "", "")
    file.write_text("digits/mha: seed 0\n")
    assert last_progress(file) == ("starts", "", "")
    epoch = "epoch 3/10  train/loss 0.9  val/accuracy 0.8094  val/loss 0.8  1.5 s/epoch, 0:10 min left\n"
    file.write_text("x" * 9000 + "\n" + epoch + "a warning\n")
    assert last_progress(file) == ("epoch 3/10", "val/accuracy 0.8094", "0:10 min")
    file.write_text(epoch + "step 1,200/9,000  0.10 s/step, 1:05 h left, 2.0 GB\n")
    assert last_progress(file) == ("step 1,200/9,000", "", "1:05 h")
