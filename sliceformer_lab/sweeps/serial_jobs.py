"""Runs the jobs of a sweep one after the other in this process."""

from __future__ import annotations

import logging

from sliceformer_lab.errors import LabError
from sliceformer_lab.sweeps.queue import Launcher, Queue

log = logging.getLogger(__name__)


class Serial(Launcher):
    """One job at a time, with all cores. What a job prints goes to the terminal."""

    def run(self, queue: Queue) -> bool:
        """Runs every job that is left; an error ends its job only, a signal the sweep."""
        while True:
            while (job := queue.take()) is not None:
                print(f"\n{job.name}: {' '.join(job.words)}", flush=True)  # noqa: T201
                try:
                    queue.work(job)
                except LabError as error:
                    status = queue.state(job).status
                    print(f"this job {error.status if status != 'running' else 'runs elsewhere'}: {error}", flush=True)  # noqa: T201
                queue.note_end(job)
            if not queue.wait_for_others():
                return True
