"""Runs jobs that a command plans as a sweep, step by step, until each of them has ended."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sliceformer_lab.cli.run_sweep import run_job
from sliceformer_lab.config.compose import search_path
from sliceformer_lab.errors import LabError
from sliceformer_lab.runs.job_state import allow_retry, record_refusal, state_of
from sliceformer_lab.runs.sources import Sources
from sliceformer_lab.runs.sweep import PlannedJob, Sweep, write_sweep
from sliceformer_lab.sweeps.queue import Launcher, Queue

STARTS = 2  # of a job in one step: it goes on once after its process was killed or stopped
ENDED_EARLY = ("killed", "interrupted")


@dataclass
class JobsInSteps:
    """Jobs in one folder that are planned step by step, from the results of the steps before."""

    command: str  # that plans them
    folder: Path
    launcher: Launcher
    modules: Sequence[str]  # that the jobs import
    data: Sources  # the user's own, as the command's plan has it: no job starts on other data
    retry: bool = False
    planned: dict[str, PlannedJob] = field(default_factory=dict, init=False)

    def run(self, jobs: Iterable[PlannedJob]) -> None:
        """Run those of a step's jobs that have not ended. A job whose process is killed twice fails.

        Raises Interrupted at a signal, and LabError if some jobs were stopped or not run, as when the sweep is
        cancelled: the same command goes on with them. Raises LabError too if some jobs so far have failed, because a
        failed run is neither a score nor chance; what diverged has ended well.
        """
        step = {job.name: job for job in jobs}
        for name in step.keys() - self.planned.keys() if self.retry else ():
            if state_of(self.folder / name).status == "failed":
                allow_retry(self.folder / name)
        self.planned |= step
        for _ in range(STARTS):
            if left := self._list_unfinished(step):
                self._start_jobs(left)
            if not any(state_of(self.folder / job.name).status in ENDED_EARLY for job in left):
                break
        ends = {job.name: state_of(self.folder / job.name).status for job in self._list_unfinished(step)}
        for name in [name for name, status in ends.items() if status == "killed"]:
            record_refusal(self.folder / name, LabError("its process died twice"))
        if waiting := [name for name, status in ends.items() if status != "killed"]:
            raise LabError(
                f"{len(waiting)} of {len(step)} jobs in {self.folder} were stopped or not run, the first is "
                f"{waiting[0]} ({ends[waiting[0]]}); the same command goes on"
            )
        states = {name: state_of(self.folder / name) for name in self.planned}
        if failed := {name: state.error for name, state in states.items() if state.status == "failed"}:
            name, error = next(iter(failed.items()))
            raise LabError(
                f"{len(failed)} of {len(states)} runs of this {self.command} failed, and a failed run is no result; "
                f"the first is {name}: {' '.join(str(error).split())}; mend the cause and give the same command with "
                "retry=true, or leave the row out"
            )

    def _list_unfinished(self, step: dict[str, PlannedJob]) -> list[PlannedJob]:
        return [job for name, job in step.items() if not state_of(self.folder / name).is_final]

    def _start_jobs(self, jobs: Sequence[PlannedJob]) -> None:
        """Hand jobs to the launcher; the plan in the folder names those of all steps so far."""
        flags = tuple(search_path())
        write_sweep(Sweep(self.folder, tuple(self.planned.values()), flags, data=self.data))
        sweep = Sweep(self.folder, tuple(jobs), flags, data=self.data)
        if not self.launcher.run(Queue(sweep, run_job, self.modules)):
            raise LabError(
                f"the jobs in {self.folder} go on without this process; start the same command once they ended"
            )
