"""Runs several jobs of a sweep at once on this machine, each forked from a server with the libraries."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerContext, ForkServerProcess
from typing import Literal

from hydra.core.utils import env_override

from sliceformer_lab.config.option_types import Count
from sliceformer_lab.errors import ConfigError, Interrupted, LabError
from sliceformer_lab.runs.job_state import OUTPUT
from sliceformer_lab.runs.processes import num_cores
from sliceformer_lab.runs.sweep import PlannedJob, Sweep
from sliceformer_lab.sweeps.board import JobBoard
from sliceformer_lab.sweeps.fork_server import begin_job, can_fork, fork_server, hidden_main
from sliceformer_lab.sweeps.queue import LOCAL, Launcher, Queue, RunJob, print_to
from sliceformer_lab.training.processes.signals import first_signal, signals_as_errors, time_to_save

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
POLL_S = 0.5  # seconds between looks at the jobs


class LocalLauncher(Launcher):
    """`jobs` processes at once, each with its share of the cores and with GPUs of its own."""

    def __init__(
        self, *, jobs: Count | Literal["auto"] = "auto", gpus: Count = 1, threads: Count | Literal["auto"] = "auto"
    ) -> None:
        if not can_fork():
            raise ConfigError("launcher=local: this system cannot fork processes; use launcher=serial")
        visible = visible_gpus()
        if visible and len(visible) // gpus < (1 if jobs == "auto" else jobs):
            raise ConfigError(
                f"launcher.jobs={jobs}, launcher.gpus={gpus}: there are {len(visible)} GPUs, for at most "
                f"{len(visible) // gpus} jobs; jobs on the CPU need CUDA_VISIBLE_DEVICES= in front of the command"
            )
        cores = num_cores()
        self.places = jobs if jobs != "auto" else len(visible) // gpus if visible else max(1, cores // 2)
        if jobs == "auto" and not visible and self.places == 1 < cores:
            self.remark = (
                f"one job at a time: launcher.jobs=auto counts two cores a job of {cores}; launcher.jobs=2 runs two"
            )
        each = os.environ.get(THREADS[0], str(max(1, cores // self.places))) if threads == "auto" else str(threads)
        self.variables = {name: os.environ.get(name, each) if threads == "auto" else each for name in THREADS}
        self._gpus = [visible[gpus * slot : gpus * (slot + 1)] for slot in range(self.places)] if visible else []

    def run(self, queue: Queue) -> bool:
        """Starts jobs while there are free places; an error ends its job only, a signal all of them."""
        context = fork_server(queue.modules)
        lifeline, held_here = context.Pipe(duplex=False)
        running: dict[int, tuple[PlannedJob, ForkServerProcess]] = {}  # by the place that it takes
        with held_here, JobBoard(queue.sweep, places=self.places) as board, env_override(dict(self.variables)):
            try:
                while True:
                    for place in set(range(self.places)) - set(running):
                        if (job := queue.take()) is None:
                            break
                        running[place] = job, self._start(context, lifeline, queue, job, place)
                        board.begin(job)
                    if not running and not queue.wait_for_others():
                        return True
                    wait([process.sentinel for _, process in running.values()], timeout=POLL_S)
                    for place in [place for place, (_, process) in running.items() if not process.is_alive()]:
                        job, process = running.pop(place)
                        process.join()
                        queue.note_end(job)
                        board.end(job)
                    board.refresh()
                    if queue.is_cancelled():
                        raise Interrupted("stopped by `sweep cancel`", signal.SIGTERM)
            finally:
                _stop_jobs([process for _, process in running.values()])

    def _start(
        self, context: ForkServerContext, lifeline: Connection, queue: Queue, job: PlannedJob, place: int
    ) -> ForkServerProcess:
        variables = dict(self.variables)
        if self._gpus:
            variables["CUDA_VISIBLE_DEVICES"] = ",".join(self._gpus[place])
        process = context.Process(
            target=_run_job, args=(queue.sweep, queue.run, job, variables, lifeline), name=job.name
        )
        with hidden_main():
            process.start()
        return process


def visible_gpus() -> list[str]:
    """The GPUs that this process may use: those of CUDA_VISIBLE_DEVICES, else all of the machine."""
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    if given is not None:
        return [name.strip() for name in given.split(",") if name.strip()]
    if (program := shutil.which("nvidia-smi")) is None:
        return []
    try:
        listed = subprocess.run([program, "-L"], capture_output=True, text=True, timeout=30).stdout
    except (OSError, subprocess.TimeoutExpired):
        return []
    return [str(number) for number, line in enumerate(listed.splitlines()) if line.startswith("GPU")]


def _stop_jobs(processes: Sequence[ForkServerProcess]) -> None:
    """Stops the jobs that run, which save a checkpoint first."""
    number = first_signal() or signal.SIGTERM
    for process in processes:
        if process.pid is not None:
            with suppress(ProcessLookupError):
                os.kill(process.pid, number)
    with time_to_save():
        for process in processes:
            process.join()


def _run_job(sweep: Sweep, run: RunJob, job: PlannedJob, variables: Mapping[str, str], lifeline: Connection) -> None:
    """What a job's process does. `lifeline` is a pipe from the process of the sweep, with which the job ends."""
    begin_job(lifeline)
    os.setpgid(0, 0)  # a Ctrl-C reaches the process of the sweep only, which stops its jobs
    os.environ |= variables
    folder = sweep.place(job)
    folder.mkdir(parents=True, exist_ok=True)
    print_to(folder / OUTPUT)
    try:
        with signals_as_errors():
            Queue(sweep, run, launcher=LOCAL).work(job)
    except (LabError, Interrupted) as error:
        print(f"this job {error.status}: {error}", flush=True)  # noqa: T201
        sys.exit(error.exit_code)
