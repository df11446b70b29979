"""A job that trains nothing: it writes the summary that its words ask for, for tests of queues and launchers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from sliceformer_lab.errors import DataError, DivergedError, LabError
from sliceformer_lab.runs.files import write_json
from sliceformer_lab.runs.job_state import state_of
from sliceformer_lab.runs.sweep import PlannedJob, Sweep, override_key, write_sweep

ERRORS: dict[str, type[LabError]] = {"failed": LabError, "diverged": DivergedError, "data": DataError}


def run_fake(words: Sequence[str]) -> None:
    """Runs `end=WORD` once and `ok` from the second start on; `seconds=S` takes its time. Appends to `starts`."""
    given = {override_key(word): word.partition("=")[2].strip("'") for word in words}
    folder = Path(given["resume"] if "resume" in given else given["hydra.run.dir"])
    how, gpus = "resumed" if "resume" in given else "new", os.environ.get("CUDA_VISIBLE_DEVICES", "")
    with (folder / "starts").open("a") as file:
        file.write(f"{os.getpid()} {how} {gpus}\n")
    first = not (folder / "config.yaml").exists()
    (folder / "config.yaml").write_text("format: 1\nnames: {}\n")
    summary = {"format": 1, "task": "t", "attention": "a", "status": "running", "best": {"value": 0.5}}
    write_json(folder / "summary.json", summary)
    time.sleep(float(given.get("seconds", 0)))
    end = given.get("end", "ok") if first else "ok"
    if end == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    write_json(folder / "summary.json", summary | {"status": "ok" if end == "ok" else "failed"})
    if end != "ok":
        raise ERRORS[end](f"it {end}")


def fake_measure(words: Sequence[str]) -> tuple[float, int]:
    """Seconds and bytes of a job, in place of a few of its steps; one of `attention=broken` cannot run."""
    if "attention=broken" in words:
        raise ValueError
    return 100.0, 1


def sweep_of(folder: Path, *jobs: str) -> Sweep:
    """A sweep of fake jobs, one for each line of words, written into a folder."""
    planned = (PlannedJob(f"{number}-job", tuple(words.split())) for number, words in enumerate(jobs))
    sweep = Sweep(folder, tuple(planned))
    write_sweep(sweep)
    return sweep


def starts_of(folder: Path) -> list[str]:
    """What each start of a fake job wrote: its process, whether it was resumed, and its GPUs."""
    file = folder / "starts"
    return file.read_text().splitlines() if file.exists() else []


def statuses(sweep: Sweep) -> list[str]:
    """How far the jobs of a sweep are."""
    return [state_of(sweep.place(job)).status for job in sweep.jobs]


ELSEWHERE = """
from pathlib import Path
from support.fake_jobs import run_fake
from sliceformer_lab.runs.sweep import read_sweep
from sliceformer_lab.sweeps import fork_server
from sliceformer_lab.sweeps.local_jobs import LocalLauncher
from sliceformer_lab.sweeps.queue import Queue
from sliceformer_lab.sweeps.serial_jobs import Serial
from sliceformer_lab.training.processes.signals import signals_as_errors
fork_server.LIBRARIES = ()
sweep = read_sweep(Path({folder!r}))
"""


def start_elsewhere(sweep: Sweep, line: str) -> subprocess.Popen[str]:
    """Another process that executes a line of Python about `sweep`."""
    code = ELSEWHERE.format(folder=str(sweep.folder)) + line
    folder = Path(__file__).parents[1]
    return subprocess.Popen([sys.executable, "-c", code], cwd=folder, stderr=subprocess.PIPE, text=True)
