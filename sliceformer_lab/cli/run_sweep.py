"""Runs a sweep: plans it, writes the plan into its folder, hands the jobs to a launcher, and sums up how they ended."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from filelock import FileLock

from sliceformer_lab.cli.arguments import Arguments, open_arguments
from sliceformer_lab.cli.command import Command
from sliceformer_lab.cli.console import print_error
from sliceformer_lab.cli.jobs import as_lab_error
from sliceformer_lab.cli.run_once import run_once
from sliceformer_lab.cli.train import train_command
from sliceformer_lab.config.checked import check_config
from sliceformer_lab.config.compose import compose_job
from sliceformer_lab.config.schema import check_node
from sliceformer_lab.errors import ConfigError, Interrupted, LabError
from sliceformer_lab.runs.commit import git_commit
from sliceformer_lab.runs.job_state import state_of
from sliceformer_lab.runs.names import register_resolvers
from sliceformer_lab.runs.plain_text import counted, one_line
from sliceformer_lab.runs.processes import is_first_process
from sliceformer_lab.runs.sources import data_words, digests_of
from sliceformer_lab.runs.sweep import SWEEP_FILE, Sweep, override_key, quote_path, read_sweep, write_sweep
from sliceformer_lab.sweeps.plan import SweepPlan, is_sweep, plan_sweep
from sliceformer_lab.sweeps.preview import preview
from sliceformer_lab.sweeps.queue import Launcher, Queue
from sliceformer_lab.training.processes.slurm_tasks import follow, is_other_task

JOB_MEASURING_S = 3.0  # seconds for the steps of one job


def planned_sweep(arguments: Arguments) -> SweepPlan | None:
    """The sweep that a command line asks for; None if it asks for one run. Raises ConfigError."""
    if not is_first_process() or not is_sweep(arguments.words, arguments.multirun):
        return None
    register_resolvers()
    return plan_sweep(arguments.words, arguments.multirun)


def run_job(words: Sequence[str]) -> None:
    """Train with these words of a command line. Raises LabError."""
    command = train_command()
    with open_arguments(command, words) as arguments:
        if is_other_task():
            follow()
        else:
            run_once(command, arguments.words)


def measure_job(words: Sequence[str]) -> tuple[float, int]:
    """Seconds and bytes that a job with these words would need, from a few steps. Raises LabError."""
    from sliceformer_lab.training.timing import measured_cost

    register_resolvers()
    with open_arguments(train_command(), words) as arguments, TemporaryDirectory() as folder:
        config = compose_job([*arguments.words, f"hydra.run.dir={quote_path(folder)}"])
        return measured_cost(config, JOB_MEASURING_S)


def _check_tuned_values(words: Sequence[str]) -> None:
    """Raise DataError, before any job starts, if the values of optim=tuned: are those of other data than a job has."""
    from sliceformer_lab.training.build import build_data
    from sliceformer_lab.training.saved.same_data import check_tuned_on

    register_resolvers()
    with open_arguments(train_command(), words) as arguments, TemporaryDirectory() as folder:
        plan = check_config(compose_job([*arguments.words, f"hydra.run.dir={quote_path(folder)}"]))
        check_tuned_on(plan, Path(folder), build_data(plan))


def run_sweep(plan: SweepPlan, command: Command, arguments: Arguments, argv: Sequence[str]) -> int:
    """Run the jobs of a sweep that are left to do; returns the exit code. Raises LabError before the first job."""
    launcher: Launcher = check_node(plan.launcher, "launcher").build()
    facts: dict[str, Any] = {"commit": git_commit(), "time": datetime.now().astimezone().isoformat(timespec="seconds")}
    facts["current_folder"] = str(Path.cwd())
    sweep = Sweep(plan.folder, plan.jobs, arguments.flags, tuple(argv), plan.study, plan.data, facts)
    tuned = [job.words for job in plan.jobs if any(override_key(word) == "tuned_on" for word in job.words)]
    for words in {data_words(words): words for words in tuned}.values():
        _check_tuned_values(words)
    _write_once(sweep)
    for line in preview(plan, launcher, measure_job):
        print(line, flush=True)  # noqa: T201
    try:
        if not launcher.run(Queue(sweep, run_job, plan.modules)):
            return 0
    except Interrupted:
        _print_ends(sweep)
        raise
    code = _print_ends(sweep)
    try:
        command.after_sweep(sweep)
    except Exception as raised:
        return max(code, print_error(as_lab_error(raised)))
    return code


def _write_once(sweep: Sweep) -> None:
    """Write the plan, or find the same one in the folder. Raises ConfigError for another one, or in data."""
    if inside := [name for name in sweep.data if sweep.folder.is_relative_to(name)]:
        raise ConfigError(f"{sweep.folder} is in the data {inside[0]}, which it would change; choose another folder")
    try:
        sweep.folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError, FileNotFoundError) as error:
        raise ConfigError(
            f"{sweep.folder} cannot be the folder of a sweep ({error.strerror}); choose another"
        ) from None
    with FileLock(sweep.folder / ".plan.lock", timeout=30):
        if not (sweep.folder / SWEEP_FILE).is_file():
            write_sweep(sweep)
            return
    there = read_sweep(sweep.folder)
    if [job.name for job in there.jobs] != [job.name for job in sweep.jobs]:
        new = {job.words for job in sweep.jobs} - {job.words for job in there.jobs}
        example = f", {' '.join(min(new))} is not among them" if new else ""
        raise ConfigError(
            f"{sweep.folder} holds another sweep, of {counted(len(there.jobs), 'job')}{example}; "
            "choose another hydra.sweep.dir"
        )
    if digests_of(there.data) != digests_of(sweep.data):
        if any(state_of(there.place(job)).status not in ("planned", "failed") for job in there.jobs):
            raise ConfigError(
                f"{sweep.folder} holds a sweep of other data ({', '.join(there.data)}); choose another hydra.sweep.dir"
            )
        write_sweep(sweep)  # no job has a result of the other data, as after a missing file was put in its place
    if there.facts.get("commit") != sweep.facts["commit"]:
        before, now = there.facts.get("commit"), sweep.facts["commit"]
        print(f"WARNING: jobs there were planned with commit {before}, and this is {now}")  # noqa: T201


def _print_ends(sweep: Sweep) -> int:
    """Print how the jobs ended, and what goes on with the others. Returns 0, or 1 if there are others."""
    states = [state_of(sweep.place(job)) for job in sweep.jobs]
    lines = [
        f"{one_line(job.name)}  {state.status}  {state.outcome}"
        for job, state in zip(sweep.jobs, states, strict=True)
        if state.status != "planned"
    ]
    metrics = sorted({state.metric for state in states if state.metric and state.value is not None})
    print(f"\njobs in {sweep.folder}{', '.join(['', *metrics])}", *lines, sep="\n  ", flush=True)  # noqa: T201
    total = len(sweep.jobs)
    done = sum(state.status == "ok" for state in states)
    if done == total:
        return 0
    again = sum(not state.is_final for state in states)
    failed = sum(state.status == "failed" for state in states)
    ours = (sweep.folder / SWEEP_FILE).is_file()
    advice = [f"the same command goes on with {again}"] if again and ours else []
    advice += [f"`sweep retry {shlex.quote(str(sweep.folder))}` tries {failed} again"] if failed and ours else []
    return print_error(LabError("; ".join([f"{total - done} of {total} jobs did not finish", *advice])))
