"""The jobs of a multirun and the table that ends it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True)
class Job:
    """How one job ended."""

    folder: Path
    status: str
    value: float | None
    error: str = ""


class Jobs:
    """Collects jobs as they end."""

    def __init__(self) -> None:
        self._jobs: list[Job] = []
        self.many = False

    def clear(self) -> None:
        """Forget everything."""
        self._jobs, self.many = [], False

    def add(self, job: Job, many: bool) -> None:
        """Record a job; `many` says that it is one of a multirun."""
        self._jobs.append(job)
        self.many = many

    def report(self) -> int:
        """Print every job with its result or error, and return the exit code: 1 if any failed."""
        table = Table(title=f"{len(self._jobs)} jobs in {self._jobs[0].folder.parent}", title_justify="left")
        for column in ("job", "status", "validation", "error"):
            table.add_column(column, overflow="fold")
        for job in self._jobs:
            value = "" if job.value is None else f"{job.value:.4f}"
            table.add_row(job.folder.name, job.status, value, job.error)
        Console(highlight=False, soft_wrap=True).print(table)
        return int(any(job.status != "ok" for job in self._jobs))
