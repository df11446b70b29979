"""Runs jobs that a command plans as a sweep, step by step, until each of them has ended."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from sliceformer_lab.cli.run_sweep import run_job
from sliceformer_lab.config.compose import conf_folders, search_path
from sliceformer_lab.errors import LabError
from sliceformer_lab.runs.job_state import refuse, state_of, try_again
from sliceformer_lab.runs.sources import Sources
from sliceformer_lab.runs.sweep import PlannedJob, Sweep, write_sweep
from sliceformer_lab.sweeps.queue import Launcher, Queue

STARTS = 2  # of a job in one step: it goes on once after its process was killed or stopped
ENDED_EARLY = ("killed", "interrupted")


class JobsInSteps:
    """Jobs in one folder that are planned step by step, from the results of the steps before.

    `command` plans them, and `modules` is what they import; `data` is the user's own, as the command's plan has it, and
    no job starts on other data.
    """

    def __init__(
        self,
        command: str,
        folder: Path,
        launcher: Launcher,
        modules: Sequence[str],
        data: Sources,
        retry: bool = False,
    ) -> None:
        self._command = command
        self._folder, self._launcher, self._modules, self._data, self._retry = folder, launcher, modules, data, retry
        self._flags = tuple(search_path(conf_folders()[1:]))
        self._planned: dict[str, PlannedJob] = {}

    def run(self, jobs: Iterable[PlannedJob]) -> None:
        """Run those of a step's jobs that have not ended. A job whose process is killed twice fails.

        Raises Interrupted at a signal, and LabError if some jobs were stopped or not run, as when the sweep is
        cancelled: the same command goes on with them. Raises LabError too if some jobs so far have failed, because a
        failed run is neither a score nor chance; what diverged has ended well.
        """
        step = {job.name: job for job in jobs}
        for name in step.keys() - self._planned.keys() if self._retry else ():
            if state_of(self._folder / name).status == "failed":
                try_again(self._folder / name)
        self._planned |= step
        for _ in range(STARTS):
            if left := self._left(step):
                self._start(left)
            if not any(state_of(self._folder / job.name).status in ENDED_EARLY for job in left):
                break
        ends = {job.name: state_of(self._folder / job.name).status for job in self._left(step)}
        for name in [name for name, status in ends.items() if status == "killed"]:
            refuse(self._folder / name, LabError("its process died twice"))
        if waiting := [name for name, status in ends.items() if status != "killed"]:
            raise LabError(
                f"{len(waiting)} of {len(step)} jobs in {self._folder} were stopped or not run, the first is "
                f"{waiting[0]} ({ends[waiting[0]]}); the same command goes on"
            )

        self._check_failures()

    def _check_failures(self) -> None:
        states = {name: state_of(self._folder / name) for name in self._planned}
        if failed := {name: state.error for name, state in states.items() if state.status == "failed"}:
            name, error = next(iter(failed.items()))
            raise LabError(
                f"{len(failed)} of {len(states)} runs of this {self._command} failed, and a failed run is no result; "
                f"the first is {name}: {' '.join(str(error).split())}; mend the cause and give the same command with "
                "retry=true, or leave the row out"
            )

    def _left(self, step: dict[str, PlannedJob]) -> list[PlannedJob]:
        return [job for name, job in step.items() if not state_of(self._folder / name).is_final]

    def _start(self, jobs: Sequence[PlannedJob]) -> None:
        """Hand jobs to the launcher; the plan in the folder names those of all steps so far."""
        write_sweep(Sweep(self._folder, tuple(self._planned.values()), self._flags, data=self._data))
        sweep = Sweep(self._folder, tuple(jobs), self._flags, data=self._data)
        if not self._launcher.run(Queue(sweep, run_job, self._modules)):
            raise LabError(
                f"the jobs in {self._folder} go on without this process; start the same command once they ended"
            )
