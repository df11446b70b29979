"""The jobs of one command and how they ended."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sliceformer_lab.errors import LabError


@dataclass(frozen=True)
class Job:
    """How one job ended: with the monitored metric, or with an error."""

    folder: Path
    of_sweep: bool
    value: float | None = None
    error: LabError | None = None

    def __str__(self) -> str:
        value = "" if self.value is None else f"{self.value:.4f}"
        return f"{self.folder.name}  {self.error.status if self.error else 'ok'}  {self.error or value}"


def exit_code(jobs: list[Job]) -> int:
    """0 if all jobs ended well, 1 if one failed, 128 + its number if a signal stopped one."""
    return max((job.error.exit_code for job in jobs if job.error), default=0)


def summarise(jobs: list[Job]) -> str:
    """What to say at the end: nothing of a single job that went well, its error, or every job of a sweep on a line."""
    failed = [job for job in jobs if job.error]
    if any(job.of_sweep for job in jobs):
        lines = [f"{len(failed)} of {len(jobs)} jobs in {jobs[0].folder.parent} failed", *map(str, jobs)]
        return "\n  ".join(lines)
    return "".join(str(job.error) for job in failed)
