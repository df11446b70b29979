"""Runs jobs that a command plans as a sweep, until each of them has ended."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from sliceformer_lab.cli.run_sweep import run_job
from sliceformer_lab.config.compose import conf_folders, search_path
from sliceformer_lab.errors import LabError
from sliceformer_lab.runs.job_state import JobState, refuse, state_of, try_again
from sliceformer_lab.runs.sources import Sources
from sliceformer_lab.runs.sweep import PlannedJob, Sweep, write_sweep
from sliceformer_lab.sweeps.queue import Launcher, Queue

STARTS = 2  # of a job whose process dies: it goes on once, and fails if it dies again
DIED = ("killed", "interrupted")


class JobsInSteps:
    """Jobs in one folder that are planned step by step, from the results of the steps before."""

    def __init__(
        self, folder: Path, launcher: Launcher, modules: Sequence[str], data: Sources, retry: bool = False
    ) -> None:
        self._folder, self._launcher, self._modules, self._data, self._retry = folder, launcher, modules, data, retry
        self._planned: dict[str, PlannedJob] = {}

    def run(self, jobs: Iterable[PlannedJob]) -> None:
        """Run those of a step's jobs that have not ended; one whose process dies twice fails. Raises as `run_jobs`."""
        step = {job.name: job for job in jobs}
        for name in step.keys() - self._planned.keys() if self._retry else ():
            if state_of(self._folder / name).status == "failed":
                try_again(self._folder / name)
        self._planned |= step
        if left := [job for job in step.values() if not state_of(self._folder / job.name).is_final]:
            ends = run_jobs(self._folder, list(self._planned.values()), left, self._launcher, self._modules, self._data)
            for name in [name for name, state in ends.items() if not state.is_final]:
                refuse(self._folder / name, LabError("its process died twice"))

    def check_failures(self, command: str) -> None:
        """Raises LabError if some of the jobs so far have failed; what diverged has ended well."""
        states = {name: state_of(self._folder / name) for name in self._planned}
        if failed := {name: state.error for name, state in states.items() if state.status == "failed"}:
            name, error = next(iter(failed.items()))
            raise LabError(
                f"{len(failed)} of {len(states)} runs of this {command} failed, and a failed run is no result; the "
                f"first is {name}: {' '.join(str(error).split())}; mend the cause and give the same command with "
                "retry=true, or leave the row out"
            )


def run_jobs(
    folder: Path,
    jobs: Sequence[PlannedJob],
    left: Sequence[PlannedJob],
    launcher: Launcher,
    modules: Sequence[str],
    data: Sources,
) -> Mapping[str, JobState]:
    """Run those of the jobs that are left, and return how each of these ended, by its name.

    `modules` is what they import; `data` is the user's own, as the command's plan has it, and no job starts on other
    data. Raises Interrupted at a signal, and LabError if some were not run, as when
    the sweep is cancelled.
    """
    flags = tuple(search_path(conf_folders()[1:]))
    write_sweep(Sweep(folder, tuple(jobs), flags, data=data))
    for _ in range(STARTS):
        sweep = Sweep(folder, tuple(left), flags, data=data)
        if not launcher.run(Queue(sweep, run_job, modules)):
            raise LabError(f"the jobs in {folder} go on without this process; start the same command once they ended")
        states = {job.name: state_of(sweep.place(job)) for job in left}
        if not any(state.status in DIED for state in states.values()):
            break
    if waiting := [name for name, state in states.items() if not state.is_final and state.status not in DIED]:
        raise LabError(f"{len(waiting)} of {len(left)} jobs in {folder} were not run; the same command goes on")
    return states
