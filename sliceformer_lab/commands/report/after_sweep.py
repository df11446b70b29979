"""What happens on W&B when a sweep is over. Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Sequence

from sliceformer_lab.cli.jobs import Job
from sliceformer_lab.errors import InterruptedRunError
from sliceformer_lab.training.distributed import is_first_process


def sweep_compared(jobs: Sequence[Job]) -> str | None:
    """Send the comparison of a whole sweep to W&B, if its runs went there; returns what to tell of it."""
    stopped = any(isinstance(job.error, InterruptedRunError) for job in jobs)
    if stopped or not is_first_process():
        return None
    from sliceformer_lab.commands.report.wandb_comparison import log_comparison

    try:
        return log_comparison([job.folder for job in jobs])
    except (Exception, KeyboardInterrupt) as error:  # no reason for finished jobs to fail
        return f"the comparison of the sweep could not be sent to W&B ({type(error).__name__}: {error})"
