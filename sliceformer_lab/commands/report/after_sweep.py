"""The step after a sweep: the report of a study, and the comparison on W&B. Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Sequence

from sliceformer_lab.cli.jobs import Job
from sliceformer_lab.commands.report.report_options import ReportOptions
from sliceformer_lab.errors import InterruptedRunError
from sliceformer_lab.runs.processes import is_first_process


def report_sweep(jobs: Sequence[Job]) -> None:
    """Write the report of a study into its sweep's folder, and log the comparison of a sweep whose runs use W&B.

    Does nothing for a sweep that a signal stopped. Raises LabError if a study has no readable run.
    """
    if any(isinstance(job.error, InterruptedRunError) for job in jobs) or not is_first_process():
        return
    if jobs[0].study:
        from sliceformer_lab.commands.report.write_report import run

        sweep = jobs[0].folder.parent
        run(ReportOptions(folder=str(sweep)), sweep / "report")
    _log_comparison(jobs)


def _log_comparison(jobs: Sequence[Job]) -> None:
    from sliceformer_lab.commands.report.wandb_comparison import log_comparison

    try:
        message = log_comparison([job.folder for job in jobs])
    except (Exception, KeyboardInterrupt) as error:  # no reason for finished jobs to fail
        message = f"the comparison of the sweep could not be sent to W&B ({type(error).__name__}: {error})"
    if message:
        print(message)  # noqa: T201
