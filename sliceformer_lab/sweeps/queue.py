"""The jobs of a sweep that are left to do, and how one of them runs."""

from __future__ import annotations

import os
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from sliceformer_lab.errors import DataError
from sliceformer_lab.runs.folder import CONFIG
from sliceformer_lab.runs.job_state import FINAL_STATUSES, JobState, claim_job, record_refusal, state_of
from sliceformer_lab.runs.resume import may_change
from sliceformer_lab.runs.sources import check_sources, data_words
from sliceformer_lab.runs.sweep import PlannedJob, Sweep, quote_path

RunJob = Callable[[Sequence[str]], None]  # trains with these words of a command line; raises LabError
SERIAL, LOCAL, SLURM = "serial", "local", "slurm"  # a job runs in the process of the sweep, in its child, in Slurm
CANCELLED = ".cancelled"  # in the folder of a sweep: a time; starts from before stop

POLL_S = 2.0  # seconds between looks at jobs that other processes run


class Launcher(ABC):
    """Runs the jobs of a queue."""

    places: int = 1  # how many jobs run at once
    remark: str = ""  # why so few
    variables: Mapping[str, str] = {}  # of the environment of each job's process
    measures = True  # whether a few steps in a process of this machine say how long a job takes

    @abstractmethod
    def run(self, queue: Queue) -> bool:
        """Runs every job that is left. False: the jobs go on after this process. Raises Interrupted."""


class Queue:
    """What is left to do in the folder of a sweep. Several processes may work on one folder, each with a queue.

    A job is taken at most once by a queue. The folder decides what a job needs: a final one is left alone, one that a
    live process holds too, one that was stopped or killed goes on from its last checkpoint.
    """

    def __init__(self, sweep: Sweep, run: RunJob, modules: Sequence[str] = (), launcher: str = SERIAL) -> None:
        self.sweep = sweep
        self.run = run
        self.modules = tuple(modules)  # that jobs import, for launchers that import them once
        self._launcher = launcher  # for the record
        self._left = list(sweep.jobs)
        self._elsewhere: list[PlannedJob] = []
        self._unreadable: dict[tuple[str, ...], str] = {}  # words of data -> what is wrong with it
        self._began = time.time()

    def take(self) -> PlannedJob | None:
        """The next job to run; None if none is left at the moment."""
        while self._left:
            job = self._left.pop(0)
            state = self.state(job)
            if state.status == "running":
                self._elsewhere.append(job)
            elif not state.is_final and not self._has_bad_data(job):
                return job
        return None

    def state(self, job: PlannedJob) -> JobState:
        """The state of a job."""
        return state_of(self.sweep.place(job))

    def note_end(self, job: PlannedJob) -> None:
        """Looks at how a job ended: jobs with the same data are not tried after a DataError.

        A job that another process took just before goes on there.
        """
        state = self.state(job)
        if state.status == "running":
            self._elsewhere.append(job)
        record = state.record or {}
        if record.get("kind") == DataError.__name__ and "error" in record:
            self._unreadable.setdefault(data_words(job.words), record["error"])

    def wait_for_others(self) -> bool:
        """Waits a moment for jobs that other processes run, and takes back those they left; False if none is left."""
        if self._elsewhere and not self._left:
            time.sleep(POLL_S)
        for job in list(self._elsewhere):
            status = self.state(job).status
            if status != "running":
                self._elsewhere.remove(job)
            if status not in (*FINAL_STATUSES, "running"):
                self._left.append(job)
        return bool(self._left or self._elsewhere)

    def work(self, job: PlannedJob) -> None:
        """Runs a job in this process. Raises the error that ends it, or RunFolderError if it is held elsewhere."""
        folder = self.sweep.place(job)
        with claim_job(folder, self._launcher) as needed:
            if needed:
                check_sources(self.sweep.data, job.words)
                self.run([*self.sweep.flags, *_words_to_run(job, folder)])

    def is_cancelled(self) -> bool:
        """Whether `sweep cancel` was called since this queue began."""
        try:
            return float((self.sweep.folder / CANCELLED).read_text()) > self._began
        except (OSError, ValueError):
            return False

    def _has_bad_data(self, job: PlannedJob) -> bool:
        fault = self._unreadable.get(data_words(job.words))
        if fault is not None:
            error = DataError(f"not tried again after an earlier job of this sweep: {fault}")
            record_refusal(self.sweep.place(job), error)
        return fault is not None


def _words_to_run(job: PlannedJob, folder: Path) -> list[str]:
    """The words that start a job, or that resume it where an earlier start left a run."""
    if (folder / CONFIG).is_file():
        return [f"resume={quote_path(folder)}", *filter(may_change, job.words)]
    return [*job.words, f"hydra.run.dir={quote_path(folder)}"]


def print_to(file: Path) -> None:
    """Sends everything that this process prints from now on to the end of a file."""
    sys.stdout.flush()
    sys.stderr.flush()
    with file.open("ab") as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
