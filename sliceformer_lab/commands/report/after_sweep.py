"""The step after a sweep: the report of a study or its command, and the comparison on W&B. Imports nothing heavy."""

from __future__ import annotations

import shlex
from typing import Any

from sliceformer_lab.commands.report.report_options import ReportOptions
from sliceformer_lab.errors import RunFolderError
from sliceformer_lab.runs.folder import read_config
from sliceformer_lab.runs.job_state import state_of
from sliceformer_lab.runs.sweep import Sweep
from sliceformer_lab.training.results.wandb_names import is_wandb


def report_sweep(sweep: Sweep) -> None:
    """Write the report of a study into its sweep's folder, or name the command that compares the runs of a sweep.

    If the runs use W&B, it gets the comparison too. Raises LabError if a study has no readable run.
    """
    if sweep.study:
        from sliceformer_lab.commands.report.write_report import write_report

        write_report(ReportOptions(folder=str(sweep.folder)), sweep.folder / "report")
    elif len(sweep.jobs) > 1 and all(state_of(sweep.place(job)).status == "ok" for job in sweep.jobs):
        print(f"compare them with: python -m sliceformer_lab report {shlex.quote(str(sweep.folder))}")  # noqa: T201
    _log_comparison(sweep)


def _log_comparison(sweep: Sweep) -> None:
    logger = _find_logger(sweep)
    if logger is None:
        return
    from sliceformer_lab.commands.report.write_report import send_comparison

    try:
        message = send_comparison(sweep.folder, logger)
    except (Exception, KeyboardInterrupt) as error:  # no reason for finished jobs to fail
        message = f"the comparison of the sweep could not be sent to W&B ({type(error).__name__}: {error})"
    print(message)  # noqa: T201


def _find_logger(sweep: Sweep) -> dict[str, Any] | None:
    """The node of the jobs' W&B logger; None if no started job has one."""
    for job in sweep.jobs:
        try:
            node = read_config(sweep.place(job)).get("logger")
        except RunFolderError:
            continue
        if is_wandb(node):
            return node
    return None
