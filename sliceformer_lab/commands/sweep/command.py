"""The command `sweep`: shows, stops and starts the jobs of a sweep from its files. Imports nothing heavy."""

from __future__ import annotations

import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from omegaconf import DictConfig
from rich.table import Table
from rich.text import Text

from sliceformer_lab.cli.command import Command
from sliceformer_lab.cli.file_words import PLANNING_COMMANDS, SWEEP_DIR, words_of_file
from sliceformer_lab.cli.jobs import command_options
from sliceformer_lab.config.schema import allowed_too
from sliceformer_lab.errors import LabError
from sliceformer_lab.runs.files import write_text
from sliceformer_lab.runs.job_state import JOB, allow_retry, state_of, working_process
from sliceformer_lab.runs.plain_text import PlainConsole, one_line
from sliceformer_lab.runs.printed_table import print_table
from sliceformer_lab.runs.sweep import SWEEP_FILE, Sweep, quote_path, read_sweep
from sliceformer_lab.sweeps.queue import CANCELLED, SERIAL
from sliceformer_lab.sweeps.slurm_array import cancel_in_slurm, slurm_numbers, slurm_states

COLORS = {"ok": "green", "failed": "red", "diverged": "red", "running": "blue"}


@dataclass(frozen=True, kw_only=True)
class SweepOptions:
    """Options of the command `sweep`."""

    action: Literal["status", "cancel", "retry"]
    folder: str


def show(sweep: Sweep) -> None:
    """Prints a line for each job, and how many there are of each state."""
    numbers = slurm_numbers(sweep.folder)
    known = (slurm_states(sweep.folder) or {}) if numbers else {}
    states = {job: state_of(sweep.place(job)) for job in sweep.jobs}
    metrics = sorted({state.metric for state in states.values() if state.metric})
    table = Table("job", "state", " or ".join(metrics) or "metric", "time", "where", "error")
    counts: Counter[str] = Counter()
    for job, state in states.items():
        number = numbers.get(job.name, "")
        word = "queued" if known.get(number) == "PENDING" and not state.is_final else state.status
        counts[word] += 1
        value = "" if state.value is None else f"{state.value:.4f}"
        seconds = "" if state.seconds is None else f"{state.seconds:.0f} s"
        record = state.record or {}
        here = f"{record.get('host')}, process {record.get('pid')}" if state.status == "running" else ""
        where = f"Slurm {number}" if number in known else here
        table.add_row(job.name, Text(word, COLORS.get(word, "default")), value, seconds, where, state.error)
    print_table(table)
    summed = ", ".join(f"{number} {word}" for word, number in counts.most_common())
    PlainConsole().print(f"{len(sweep.jobs)} jobs: {summed}")
    if any(word not in ("ok", "running", "queued") for word in counts):
        print(f"go on, failed jobs too: sweep retry {shlex.quote(str(sweep.folder))}")  # noqa: T201


def cancel(sweep: Sweep) -> None:
    """Stops the jobs that run, on any machine, and takes waiting ones out of Slurm. Raises LabError."""
    write_text(sweep.folder / CANCELLED, str(time.time()))  # every start that runs its jobs as children looks at it
    states = {job: state_of(sweep.place(job)) for job in sweep.jobs}
    elsewhere, unknown = set(), []
    for job, state in states.items():
        record = state.record or {}
        if state.status != "running" or record.get("launcher") != SERIAL:
            continue
        if record.get("host") == socket.gethostname():
            if (process := working_process(sweep.place(job), record)) is None:
                unknown.append(job.name)
                continue
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGTERM)
        else:
            elsewhere.add(f"{record.get('host')}: kill {record.get('pid')}")
    others = cancel_in_slurm(sweep.folder)
    running = sum(state.status == "running" for state in states.values())
    print(f"{running} jobs that ran save their place and stop; the same command goes on with them")  # noqa: T201
    if unknown:
        raise LabError(f"{unknown[0]}: a process holds this job that {JOB} does not name, so it was not signalled")
    if others:
        raise LabError(f"Slurm job {others[0]} was not queued by this sweep in this folder, and was not cancelled")
    if elsewhere:
        raise LabError(f"a signal does not reach other machines; run there: {'; '.join(sorted(elsewhere))}")


def retry(sweep: Sweep) -> None:
    """Starts the sweep's command again, with failed jobs.

    Raises LabError for a command that a file must not bring, and if a job does not finish again.
    """
    if not sweep.command:
        raise LabError(f"{sweep.folder / SWEEP_FILE} holds no command; start the command that made it yourself")
    words = words_of_file(sweep.command, str(sweep.folder / SWEEP_FILE))
    failed = [job for job in sweep.jobs if state_of(sweep.place(job)).status == "failed"]
    for job in failed:
        allow_retry(sweep.place(job))
    if not {*words[:1]} & {*PLANNING_COMMANDS}:  # which have a folder of their own
        words.append(f"{SWEEP_DIR}={quote_path(sweep.folder)}")
    place = Path(str(sweep.facts.get("current_folder", ".")))
    print(f"{len(failed)} failed jobs run again: {one_line(' '.join(words))}", flush=True)  # noqa: T201
    # The child reads relative paths from the folder that the file names, and imports nothing from there.
    paths = [*filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)), *([""] if allowed_too() else [])]
    safe = {"PYTHONSAFEPATH": "1", "PYTHONPATH": os.pathsep.join(map(os.path.abspath, paths))}
    answer = subprocess.run(
        [sys.executable, "-m", "sliceformer_lab", *words],
        cwd=place if place.is_dir() else None,
        env=os.environ | safe,
        check=False,
    )
    if answer.returncode:
        raise LabError(f"jobs in {sweep.folder} did not finish; see `sweep status`")


def job(cfg: DictConfig, folder: Path) -> None:
    """Validate the options and show, stop or start the sweep. Raises LabError."""
    options = command_options(cfg, SweepOptions, COMMAND.config_name)
    sweep = read_sweep(folder.resolve())
    {"status": show, "cancel": cancel, "retry": retry}[options.action](sweep)


COMMAND = Command(
    word="sweep",
    summary="Look after the jobs of a sweep: how far they are, stop them, try failed ones again.",
    arguments="status|cancel|retry FOLDER",
    examples={
        "status outputs/sweeps/NAME": "a line for each job: its state, its metric or its error, where it runs",
        "cancel outputs/sweeps/NAME": "stop what runs, also in Slurm; jobs save their place first",
        "retry outputs/sweeps/NAME": "start the sweep's own command again, with the jobs that failed",
    },
    job=job,
    bare_words=("action", "folder"),
)
