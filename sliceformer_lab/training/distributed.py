"""What the processes of one run share: decisions, states, and the arguments that start them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from hydra.core.hydra_config import HydraConfig

from sliceformer_lab.config.compose import conf_folders, search_path
from sliceformer_lab.config.schema import allowed_too

if TYPE_CHECKING:  # the command line uses this module before it imports torch
    from pytorch_lightning import Trainer
    from torch import Tensor

State = TypeVar("State")
VARIABLES = ("MASTER_ADDR", "MASTER_PORT", "NODE_RANK", "LOCAL_RANK", "WORLD_SIZE")  # set by Lightning's launcher


def is_first_process() -> bool:
    """Whether this process writes the run folder: a single process, or the first of a distributed run."""
    return int(os.environ.get("LOCAL_RANK", "0")) == 0


def any_process(trainer: Trainer, here: Tensor | bool) -> bool:
    """Whether a condition holds in at least one process. All processes must call it."""
    return bool(trainer.strategy.reduce_boolean_decision(bool(here), all=False))


def of_all_processes(state: State) -> list[State]:
    """The states of all processes, by their numbers. All processes must call it."""
    import torch.distributed as dist

    if not (dist.is_available() and dist.is_initialized()):
        return [state]
    states: list[State] = [state] * dist.get_world_size()
    dist.all_gather_object(states, state)
    return states


@contextmanager
def child_arguments(folder: Path) -> Iterator[None]:
    """Makes Lightning start its child processes with the arguments of this job only.

    Lightning starts them with `sys.argv`, which may describe a sweep, a resumed run or an evaluation. Here it names
    `folder`/.hydra/config.yaml, the resolved configuration of this job, and what the user's command line allows. At
    the end the process group and the environment variables are removed, so that the next job of a sweep starts its own.
    """
    import torch.distributed as dist

    arguments, hydra_config = sys.argv, HydraConfig.instance().cfg
    environment = {name: os.environ.get(name) for name in VARIABLES}
    quoted = str(folder).replace("\\", "\\\\").replace("'", "\\'")
    sys.argv = [
        arguments[0],
        f"--config-path={folder / '.hydra'}",
        "--config-name=config",
        f"hydra.run.dir='{quoted}'",
        "hydra.output_subdir=null",
        "hydra/job_logging=none",
        *search_path(conf_folders()[1:]),
        f"allow_targets=[{','.join(allowed_too())}]",
    ]
    HydraConfig.instance().cfg = None  # with it, Lightning would append overrides for a folder and a log file
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
