"""Runs the jobs of a sweep as an array of Slurm, by submitit.

Slurm says which jobs wait or run. How they ended is read from their folders: without accounting, Slurm forgets a job
as soon as it ends.
"""

from __future__ import annotations

import getpass
import hashlib
import io
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock

from sliceformer_lab.config.checked import check_config
from sliceformer_lab.config.compose import compose_job
from sliceformer_lab.config.option_types import Count
from sliceformer_lab.errors import ConfigError, DataError, Interrupted, LabError, check_extra
from sliceformer_lab.runs.files import known_json, write_json
from sliceformer_lab.runs.folder import LAST
from sliceformer_lab.runs.job_state import OUTPUT, record_refusal
from sliceformer_lab.runs.plain_text import PlainConsole
from sliceformer_lab.runs.processes import is_first_process
from sliceformer_lab.runs.sources import data_words
from sliceformer_lab.runs.sweep import PlannedJob, Sweep
from sliceformer_lab.sweeps.queue import SLURM, Launcher, Queue, RunJob, print_to
from sliceformer_lab.training.processes.signals import first_signal, signals_as_errors
from sliceformer_lab.training.processes.slurm_tasks import joined_step

SLURM_FOLDER = ".slurm"  # in the folder of a sweep: what submitit writes, and NUMBERS_FILE
NUMBERS_FILE = "jobs.json"  # the number in Slurm of each job
POLL_S = 5.0  # seconds between questions to Slurm
MAX_SILENCE_S = 600.0  # seconds in which Slurm may give no answer, as while its controller is restarted
SIGNAL_BEFORE_END_S = 90  # seconds before the end of its time at which a job is signalled
TIME_UP_SIGNAL = signal.SIGUSR2  # that signal
MIN_JOB_MINUTES = 3  # minutes of a job: a start, some steps, and those seconds


class Slurm(Launcher):
    """One task of an array for each job that is left to do."""

    measures = False  # its nodes are other machines

    def __init__(
        self,
        *,
        partition: str | None = None,
        time: Count = 60,
        gres: str | None = None,
        cpus: Count | None = None,
        memory: str | None = None,
        nodes: Count = 1,
        tasks_per_node: Count = 1,
        max_parallel: Count = 64,
        setup: Sequence[str] = (),
        options: Mapping[str, Any] | None = None,
        wait: bool = True,
    ) -> None:
        check_extra("launcher=slurm", "slurm", "submitit")
        if time < MIN_JOB_MINUTES:
            raise ConfigError(
                f"launcher.time={time}: a job saves its place {SIGNAL_BEFORE_END_S} s before the end of its time, so "
                f"at least {MIN_JOB_MINUTES} minutes are needed"
            )
        if shutil.which("sbatch") is None:
            raise ConfigError("launcher=slurm: this machine has no Slurm (no sbatch); log in to a node of a cluster")
        given = {"partition": partition, "gres": gres, "cpus_per_task": cpus, "mem": memory}
        self._parameters: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        self._parameters |= {"time": time, "nodes": nodes, "ntasks_per_node": tasks_per_node, "setup": list(setup)}
        self._parameters |= {"array_parallelism": max_parallel, "signal_delay_s": SIGNAL_BEFORE_END_S}
        self._parameters |= {"job_name": "sliceformer", "srun_args": ["--kill-on-bad-exit=1"]}
        self._options = dict(options or {})
        self._wait, self.places = wait, max_parallel

    def run(self, queue: Queue) -> bool:
        """Queues what is left to do in Slurm and waits until nothing of it is left there. A signal ends the waiting."""
        folder = queue.sweep.folder
        (folder / SLURM_FOLDER).mkdir(parents=True, exist_ok=True)
        with FileLock(folder / SLURM_FOLDER / ".lock"):
            in_slurm = slurm_numbers(folder)
            if (known := slurm_states(folder)) is None:
                raise LabError("launcher=slurm: Slurm does not answer (squeue failed); look at `sinfo`, then try again")
            jobs = []
            prepared: set[tuple[str, ...]] = set()  # words of data that are ready
            while (job := queue.take()) is not None:
                if in_slurm.get(job.name) in known:
                    continue
                if data_words(job.words) not in prepared and not _prepare_data(queue, job):
                    continue
                prepared.add(data_words(job.words))
                jobs.append(job)
            if jobs:
                in_slurm |= self._submit_jobs(queue, jobs)
                write_json(folder / SLURM_FOLDER / NUMBERS_FILE, in_slurm)
        numbers = {job: in_slurm[job.name] for job in queue.sweep.jobs if job.name in in_slurm}
        print(f"{len(jobs)} jobs are queued in Slurm; `sweep status {folder}` shows how far they are", flush=True)  # noqa: T201
        if not self._wait:
            return False
        try:
            _wait_for(queue, numbers)
        except Interrupted:
            print(f"the jobs go on in Slurm; `sweep cancel {folder}` stops them", flush=True)  # noqa: T201
            raise
        return True

    def _submit_jobs(self, queue: Queue, jobs: Sequence[PlannedJob]) -> dict[str, str]:
        """The number of each job in Slurm. Raises LabError if Slurm refuses them."""
        import submitit
        from submitit.core.utils import FailedJobError

        executor = submitit.SlurmExecutor(folder=queue.sweep.folder / SLURM_FOLDER)
        try:
            extra = {"requeue": True, **self._options, "comment": comment_of(queue.sweep.folder)}
            executor.update_parameters(**self._parameters, additional_parameters=extra)
            with redirect_stderr(io.StringIO()):  # submitit repeats there what sbatch says
                submitted = executor.map_array(ArrayTask(queue.sweep, queue.run), jobs)
        except FailedJobError as error:
            errors = re.findall(r"sbatch: error: (?:Batch job submission failed: )?([^\\\n]+)", str(error))
            reason = "; ".join(dict.fromkeys(errors)) or " ".join(str(error).split())
            raise LabError(f"launcher=slurm: Slurm refuses the jobs ({reason}); `sinfo` shows what there is") from error
        return {job.name: one.job_id for job, one in zip(jobs, submitted, strict=True)}


@dataclass(frozen=True)
class ArrayTask:
    """What a task of the array does: it runs one job, and is queued again when its time is up."""

    sweep: Sweep
    run: RunJob

    def __call__(self, job: PlannedJob) -> None:
        """Runs the job in this process, whose output goes to the job's file."""
        folder = self.sweep.place(job)
        folder.mkdir(parents=True, exist_ok=True)
        if is_first_process():
            print_to(folder / OUTPUT)
        queue = Queue(self.sweep, self.run, launcher=SLURM)
        began = time.time()
        try:
            with signals_as_errors(), joined_step():
                if is_first_process():
                    queue.work(job)
                else:
                    self.run([*self.sweep.flags, *job.words])
        except Interrupted as error:
            print(f"this job was stopped: {error}", flush=True)  # noqa: T201
            if first_signal() == TIME_UP_SIGNAL or error.exit_code == 128 + TIME_UP_SIGNAL:
                _queue_again(folder, began)
            raise SystemExit(error.exit_code) from error
        except LabError as error:
            print(f"this job {error.status}: {error}", flush=True)  # noqa: T201
            raise SystemExit(error.exit_code) from error


def slurm_numbers(sweep: Path) -> dict[str, str]:
    """The number in Slurm of each job of a sweep that was queued there."""
    return {name: str(number) for name, number in known_json(sweep / SLURM_FOLDER / NUMBERS_FILE).items()}


@dataclass(frozen=True)
class SlurmJob:
    """What Slurm says of a job."""

    state: str  # such as PENDING
    comment: str  # `comment_of` its sweep


def comment_of(sweep: Path) -> str:
    """The comment of a sweep's jobs in Slurm, which names its folder: a number in a file may be of any job."""
    return f"sliceformer-{hashlib.sha256(os.fsencode(sweep.resolve())).hexdigest()[:16]}"


def slurm_jobs() -> dict[str, SlurmJob] | None:
    """This user's jobs that wait or run, by number; None without an answer."""
    try:
        words = ["squeue", "--noheader", "--array", "--user", getpass.getuser(), "--format", "%i %T %k"]
        answer = subprocess.run(words, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired, KeyError):
        return None
    if answer.returncode:
        return None
    parts = [line.split(maxsplit=2) for line in answer.stdout.splitlines()]
    return {found[0]: SlurmJob(found[1], " ".join(found[2:])) for found in parts if len(found) > 1}


def slurm_states(sweep: Path) -> dict[str, str] | None:
    """The state of each job of a sweep that waits or runs, by number; None without an answer."""
    if (jobs := slurm_jobs()) is None:
        return None
    return {number: job.state for number, job in jobs.items() if job.comment == comment_of(sweep)}


def cancel_in_slurm(sweep: Path) -> list[str]:
    """Ends the jobs of a sweep in Slurm. Returns the numbers in its folder that are other jobs of this user.

    Raises LabError if Slurm does not answer.
    """
    numbers = slurm_numbers(sweep).values()
    jobs = slurm_jobs() if numbers else {}
    if jobs is None:
        raise LabError("Slurm does not answer (squeue failed), so jobs there may go on; try again when `sinfo` works")
    listed = {number for number in numbers if number in jobs}
    own = {number for number in listed if jobs[number].comment == comment_of(sweep)}
    if own:
        answer = subprocess.run(["scancel", *sorted(own)], capture_output=True, text=True)
        if answer.returncode:
            raise LabError(f"scancel failed: {' '.join(answer.stderr.split())}")
    return sorted(listed - own)


def _prepare_data(queue: Queue, job: PlannedJob) -> bool:
    """Makes the data of a job ready before an array of jobs waits for them. False: they cannot be read.

    Then the job is refused, and the queue gives no other job with these data.
    """
    from sliceformer_lab.training.build import build_data

    try:
        build_data(check_config(compose_job([*job.words, "hydra.run.dir=unused"]))).prepare_data()
    except DataError as error:
        record_refusal(queue.sweep.place(job), error)
        queue.note_end(job)
        return False
    except Exception:  # of a configuration that cannot work: the job itself reports it
        return True
    return True


def _wait_for(queue: Queue, numbers: Mapping[PlannedJob, str]) -> None:
    """Prints the states of jobs whenever they change, until none of them is left in Slurm."""
    console, shown, heard = PlainConsole(), "", time.monotonic()
    left = dict(numbers)
    while left:
        states = slurm_states(queue.sweep.folder)
        now = time.monotonic()
        heard = now if states is not None else heard
        if now - heard > MAX_SILENCE_S:
            raise LabError(
                f"Slurm has not answered for {MAX_SILENCE_S / 60:.0f} minutes; the same command goes on later"
            )
        if states is not None:
            for job in [job for job, number in left.items() if number not in states]:
                state = queue.state(job)
                if state.status != "running":  # its process may end a moment after Slurm forgets it
                    del left[job]
                    console.print(f"{job.name}  {state.status}  {state.outcome}")
            running = sum(states.get(number) == "RUNNING" for number in left.values())
            line = f"{len(numbers) - len(left)} of {len(numbers)} jobs have ended, {running} run"
            if line != shown:
                console.print(line)
                shown = line
        if queue.is_cancelled():
            return
        if left:
            time.sleep(POLL_S)


def _queue_again(folder: Path, began: float) -> None:
    """Lets Slurm start this task again from its last checkpoint, unless it would save none the next time either."""
    last = folder / "checkpoints" / LAST
    if not last.is_file() or last.stat().st_mtime < began:
        print("its time was too short to save a place, so it is not queued again; give launcher.time more", flush=True)  # noqa: T201
        return
    array, task = os.environ.get("SLURM_ARRAY_JOB_ID"), os.environ.get("SLURM_ARRAY_TASK_ID")
    number = f"{array}_{task}" if array and task else os.environ["SLURM_JOB_ID"]
    with suppress(OSError, subprocess.TimeoutExpired):
        subprocess.run(["scontrol", "requeue", number], timeout=60, check=False)
