"""What the process of a sweep prints while its jobs run: a live table on a terminal, else a line for each end."""

from __future__ import annotations

import re
import statistics
import time
from pathlib import Path
from types import TracebackType

from rich.console import Group
from rich.live import Live
from rich.table import Column, Table
from rich.text import Text

from sliceformer_lab.runs.job_state import OUTPUT, state_of
from sliceformer_lab.runs.plain_text import PlainConsole, format_clock
from sliceformer_lab.runs.sweep import PlannedJob, Sweep

PLACE_PATTERN = re.compile(r"((?:epoch|step) [\d,]+/[\d,]+)  ")  # begins the lines in which a run says how far it is
METRIC_PATTERN, TIME_LEFT_PATTERN = re.compile(r"  (val/\S+ \S+)"), re.compile(r", (\S+ (?:min|h)) left")
TAIL_BYTES = 4096  # bytes of a job's output to look at


class JobBoard:
    """Follows the jobs of a sweep, with the time that is left."""

    def __init__(self, sweep: Sweep, places: int) -> None:
        self._sweep, self._places = sweep, places
        self._console = PlainConsole()
        self._live = Live(console=self._console, auto_refresh=False) if self._console.is_terminal else None
        self._running: dict[PlannedJob, float] = {}  # when it began
        self._took: list[float] = []  # seconds, of jobs that ran to their end here
        self._left = [job for job in sweep.jobs if not state_of(sweep.place(job)).is_final]

    def __enter__(self) -> JobBoard:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.update(self._format_summary(), refresh=True)
            self._live.stop()

    def begin(self, job: PlannedJob) -> None:
        """Notes that a job starts."""
        self._running[job] = time.monotonic()

    def end(self, job: PlannedJob) -> None:
        """Prints how a job ended."""
        seconds = time.monotonic() - self._running.pop(job)
        state = state_of(self._sweep.place(job))
        # other processes may work on the same sweep, and end jobs of it too
        self._left = [job for job in self._left if not state_of(self._sweep.place(job)).is_final]
        if state.status == "ok":
            self._took.append(seconds)
        line = f"{job.name}  {state.status}  {state.outcome}  {seconds:.0f} s"
        self._console.print(line if self._live is not None else f"{line}; {self._format_summary()}")

    def refresh(self) -> None:
        """Draws the table again."""
        if self._live is None:
            return
        table = Table(Column("job", overflow="fold"), "time", "at", "metric", "left")
        for job, began in self._running.items():
            progress = last_progress(self._sweep.place(job) / OUTPUT)
            table.add_row(job.name, format_clock(time.monotonic() - began), *progress)
        self._live.update(
            Group(table, self._format_summary()) if self._running else self._format_summary(), refresh=True
        )

    def _format_summary(self) -> Text:
        total, left = len(self._sweep.jobs), len(self._left)
        text = f"{total - left} of {total} jobs have ended"
        if self._took and left:
            text += f", about {format_clock(statistics.mean(self._took) * left / self._places)} left"
        return Text(text)


def last_progress(file: Path) -> tuple[str, str, str]:
    """Where a run is, such as epoch 3/10, its first validation metric, and the time left, from what it prints."""
    try:
        with file.open("rb") as output:
            output.seek(max(0, file.stat().st_size - TAIL_BYTES))
            lines = output.read().decode(errors="replace").splitlines()
    except OSError:
        return "", "", ""
    line = next((line for line in reversed(lines) if PLACE_PATTERN.match(line)), "")
    found = [PLACE_PATTERN.match(line), METRIC_PATTERN.search(line), TIME_LEFT_PATTERN.search(line)]
    at, metric, left = (match[1] if match else "" for match in found)
    return at or "starts", metric, left
