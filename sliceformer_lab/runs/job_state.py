"""The state of a job, which its folder shows: its lock, its summary, and job.json, the record of who works on it."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from sliceformer_lab.errors import Ending, Interrupted, LabError
from sliceformer_lab.runs.files import known_json, write_json
from sliceformer_lab.runs.folder import CONFIG, is_held, known_summary, lock_folder
from sliceformer_lab.runs.plain_text import one_line
from sliceformer_lab.runs.processes import has_open, process_start

JOB, OUTPUT = "job.json", "job.log"  # in a run folder; the second holds what the job prints

Status = Literal["planned", "running", "ok", "failed", "diverged", "interrupted", "killed"]
FINAL_STATUSES = ("ok", "failed", "diverged")  # the same command again leaves such jobs as they are


@dataclass(frozen=True)
class JobState:
    """How far a job has come."""

    status: Status
    value: float | None = None  # of the monitored validation metric of a finished run
    metric: str | None = None  # the name of that metric
    error: str | None = None
    seconds: float | None = None  # that it has taken, with earlier starts
    record: Mapping[str, Any] | None = None  # the content of job.json

    @property
    def is_final(self) -> bool:
        """Whether the job has ended; a job that was stopped or killed goes on when the sweep is started again."""
        return self.status in FINAL_STATUSES

    @property
    def outcome(self) -> str:
        """The error that ended it, or else its value; '' without both."""
        return self.error or ("" if self.value is None else f"{self.value:.4f}")


def state_of(folder: Path, held: bool | None = None) -> JobState:
    """The state of the job in a folder, which need not exist. `held`: whether a process works on it, if known."""
    record = read_record(folder)
    held = is_held(folder) if held is None else held
    summary = known_summary(folder)
    if held:
        return JobState("running", seconds=summary.wall_seconds if summary else None, record=record)
    again = record.get("again") is True
    is_ok = summary is not None and summary.status == "ok"  # as after `resume=FOLDER` of a failed job
    if "error" in record and not again and not is_ok:  # newer than the summary of an earlier start
        return JobState(_read_status(record.get("status")), error=one_line(record["error"]), record=record)
    if summary and not again:
        status = "killed" if summary.status == "running" else _read_status(summary.status)
        best, error = summary.best, one_line(summary.error or "") or None
        return JobState(status, best.value, best.metric, error, summary.wall_seconds, record)
    started = not again and ("pid" in record or (folder / CONFIG).is_file())
    return JobState("killed" if started else "planned", record=record)


@contextmanager
def claim_job(folder: Path, launcher: str) -> Iterator[bool]:
    """Holds a job's folder, and records the launcher and process that work on it, and the error that ends it.

    Yields False, and records nothing, if the job is final: another process may have ended it just now.

    Raises RunFolderError if another live process holds the folder.
    """
    with lock_folder(folder):
        if state_of(folder, held=False).is_final:
            yield False
            return
        record = {
            name: value
            for name, value in read_record(folder).items()
            if name not in ("again", "error", "kind", "status", "ended")
        }
        record |= {"launcher": launcher, "host": socket.gethostname(), "pid": os.getpid(), "started": time.time()}
        record["process_start"] = process_start(os.getpid())
        record["attempts"] = record.get("attempts", 0) + 1
        write_json(folder / JOB, record)
        try:
            yield True
        except (LabError, Interrupted) as error:
            write_json(folder / JOB, record | _describe_ending(error))
            raise
        write_json(folder / JOB, record | {"ended": time.time()})


def working_process(folder: Path, record: Mapping[str, Any]) -> int | None:
    """The process of this machine that holds a job's folder, if it is the one that its record names; else None."""
    process, start = record.get("pid"), record.get("process_start")
    if type(process) is not int or process <= 1 or start is None or process_start(process) != start:
        return None
    return process if has_open(process, folder.resolve() / ".lock") else None


def record_refusal(folder: Path, error: Ending) -> None:
    """Records that a job is not run, and why."""
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / JOB, read_record(folder) | _describe_ending(error))


def _describe_ending(error: Ending) -> dict[str, Any]:
    return {"status": error.status, "kind": type(error).__name__, "error": str(error), "ended": time.time()}


def allow_retry(folder: Path) -> None:
    """Lets a failed job run again."""
    write_json(folder / JOB, read_record(folder) | {"again": True})


def read_record(folder: Path) -> dict[str, Any]:
    """The content of job.json; empty if there is none that can be read."""
    return known_json(folder / JOB)


def _read_status(word: object) -> Status:
    return word if word in get_args(Status) else "failed"  # type: ignore[return-value]
