"""What Lightning starts the other processes of a distributed run with, and what a run leaves behind of it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hydra.core.hydra_config import HydraConfig

VARIABLES = ("MASTER_ADDR", "MASTER_PORT", "NODE_RANK", "LOCAL_RANK", "WORLD_SIZE")  # set by Lightning's launcher


def is_first_process() -> bool:
    """Whether this process writes the run folder: the only one, or the first of a distributed run."""
    return int(os.environ.get("LOCAL_RANK", "0")) == 0


@contextmanager
def as_one_job(folder: Path) -> Iterator[None]:
    """Lightning repeats this program's arguments to start other processes; within, they name this job alone.

    The processes read `folder`/.hydra/config.yaml, the job's resolved configuration, so that it does not matter
    whether the command line was a sweep, a resume or an evaluation, and they write nothing. Afterwards nothing is
    left that would make the next job of a multirun take itself for a part of this one.
    """
    import torch.distributed as dist

    arguments, hydra_config = sys.argv, HydraConfig.instance().cfg
    environment = {name: os.environ.get(name) for name in VARIABLES}
    sys.argv = [arguments[0], *_child_arguments(folder)]
    HydraConfig.instance().cfg = None  # seeing it, Lightning would append overrides for a folder and a log file
    try:
        yield
    finally:
        sys.argv, HydraConfig.instance().cfg = arguments, hydra_config
        if dist.is_available() and dist.is_initialized():
            dist.destroy_process_group()
        for name, value in environment.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def _child_arguments(folder: Path) -> list[str]:
    quoted = str(folder).replace("\\", "\\\\").replace("'", "\\'")
    return [
        f"--config-path={folder / '.hydra'}",
        "--config-name=config",
        f"hydra.run.dir='{quoted}'",
        "hydra.output_subdir=null",
        "hydra/job_logging=none",
    ]
