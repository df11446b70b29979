"""How much faster a sweep is with several jobs at once, and what a job costs beyond its own work.

usage: python studies/launchers.py [ROUNDS]

Runs in turns, in fresh folders: 12 runs on digits with launcher=serial and with launcher=local launcher.jobs=2, each as
a command of its own, with the launchers' own threads and with one thread each; and 200 jobs that sleep for two seconds
with launcher.jobs=2. Writes results/launchers.json: the times of every round, their ratios, the overhead of a job.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hydra.core.utils import env_override

from sliceformer_lab.runs.commit import git_commit
from sliceformer_lab.runs.files import write_json
from sliceformer_lab.runs.folder import FORMAT
from sliceformer_lab.runs.job_state import read_record, state_of
from sliceformer_lab.runs.sweep import PlannedJob, Sweep, override_key, read_sweep, write_sweep
from sliceformer_lab.sweeps.local_jobs import LocalLauncher
from sliceformer_lab.sweeps.queue import Queue

RESULT = Path(__file__).parent / "results" / "launchers.json"
DIGITS = ("-m", "seed=range(12)", "optim.epochs=10", "callbacks=minimal", "pictures=false", "reference=null")
LAUNCHERS = {"serial": ("launcher=serial",), "local": ("launcher=local", "launcher.jobs=2")}
JOBS, SECONDS = 200, 2.0


def seconds_of(launcher: str, folder: Path) -> float:
    """The wall time of the twelve runs. Raises RuntimeError if one of them failed."""
    words = [*DIGITS, *LAUNCHERS[launcher], f"hydra.sweep.dir={folder / launcher}"]
    start = time.perf_counter()
    subprocess.run([sys.executable, "-m", "sliceformer_lab", *words], check=True, stdout=subprocess.DEVNULL)
    seconds = time.perf_counter() - start
    sweep = read_sweep(folder / launcher)
    if {state_of(sweep.place(job)).status for job in sweep.jobs} != {"ok"}:
        raise RuntimeError(f"not every run of {sweep.folder} finished")
    return seconds


def sleep_as_a_job(words: Sequence[str]) -> None:
    """A job that takes two seconds and leaves the summary of a finished run."""
    folder = next(word.partition("=")[2].strip("'") for word in words if override_key(word) == "hydra.run.dir")
    time.sleep(SECONDS)
    write_json(Path(folder) / "summary.json", {"format": FORMAT, "task": "t", "attention": "a", "status": "ok"})


def overhead_of_a_job(folder: Path) -> dict[str, float]:
    """Seconds that a job of 200 takes beyond its two seconds, in one of two places, and from its claim to its end."""
    sweep = Sweep(folder / "sleep", tuple(PlannedJob(f"{number}-sleep", ()) for number in range(JOBS)))
    write_sweep(sweep)
    first = Sweep(folder / "first", (PlannedJob("0-sleep", ()),))
    write_sweep(first)
    launcher = LocalLauncher(jobs=2)
    launcher.run(Queue(first, sleep_as_a_job))  # the server starts: Python and the libraries, once for a sweep
    start = time.perf_counter()
    launcher.run(Queue(sweep, sleep_as_a_job))
    each = (time.perf_counter() - start) * launcher.places / JOBS
    records = [read_record(sweep.place(job)) for job in sweep.jobs]
    inside = statistics.median(record["ended"] - record["started"] for record in records)
    return {"a job of 200, beyond its work": each - SECONDS, "within the process of a job": inside - SECONDS}


def compared(rounds: int, folder: Path, threads: str | None) -> dict[str, Any]:
    """The times of both launchers in turns, and their ratios; `threads` of each job, None for the launcher's own."""
    found: dict[str, list[float]] = {name: [] for name in LAUNCHERS}
    with env_override({} if threads is None else {"OMP_NUM_THREADS": threads}):
        for number in range(rounds):
            for launcher, seconds in found.items():
                seconds.append(seconds_of(launcher, folder / f"{threads}-{number}"))
    ratios = [serial / local for serial, local in zip(found["serial"], found["local"], strict=True)]
    return {"seconds": found, "serial / local": ratios}


def main(rounds: int) -> None:
    """Measures and writes the result."""
    facts: dict[str, Any] = {"commit": git_commit(), "cores": os.cpu_count(), "load before": os.getloadavg()[0]}
    with TemporaryDirectory() as place:
        facts["own threads"] = compared(rounds, Path(place), None)
        facts["one thread each"] = compared(rounds, Path(place), "1")
        facts["overhead in seconds"] = overhead_of_a_job(Path(place))
    write_json(RESULT, facts)
    print(RESULT.read_text())  # noqa: T201


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
