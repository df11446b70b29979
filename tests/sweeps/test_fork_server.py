"""Processes that are forked from a server with the libraries."""

from __future__ import annotations

import os
import time
from multiprocessing.connection import Connection
from pathlib import Path

from support.other_process import wait_for

from sliceformer_lab.data.parallel import in_order
from sliceformer_lab.runs.processes import process_start
from sliceformer_lab.sweeps.fork_server import begin_job, fork_server


def test_a_killed_job_leaves_no_process_that_prepares_data(tmp_path: Path) -> None:
    context = fork_server([])
    lifeline, held_here = context.Pipe(duplex=False)
    job = context.Process(target=prepare_for_long, args=(tmp_path, lifeline))
    with held_here:
        job.start()
        wait_for(lambda: len(list(tmp_path.iterdir())) == 2)
        job.kill()
        job.join()
    wait_for(lambda: not any(process_start(int(file.name)) for file in tmp_path.iterdir()))


def prepare_for_long(folder: Path, lifeline: Connection) -> None:
    begin_job(lifeline)
    list(in_order(write_process_and_wait, [folder] * 2, processes=2))


def write_process_and_wait(folder: Path) -> None:
    (folder / str(os.getpid())).touch()
    time.sleep(600)
