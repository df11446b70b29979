"""Starts another process of a distributed run. Imports no torch: a Slurm task that waits needs none."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from sliceformer_lab.config.compose import search_path
from sliceformer_lab.config.schema import allowed_too
from sliceformer_lab.runs.processes import PARENT


@dataclass(frozen=True, kw_only=True)
class ProcessRank:
    """The place of a process in its run: the numbers by which Lightning knows it."""

    rank: int  # of all processes
    local_rank: int  # of those on its node; chooses the GPU
    node_rank: int
    world_size: int


def start_child(folder: Path, place: ProcessRank, address: str, port: int) -> subprocess.Popen[bytes]:
    """Starts a process that trains with the first one, which listens at `address` and `port`.

    It reads the configuration that the first process wrote into `folder`, may load what the user's command line allows,
    and ends with this process.
    """
    command = [
        *(sys.executable, "-m", "sliceformer_lab"),
        f"--join={folder}",
        *search_path(),
        f"allow_targets=[{','.join(allowed_too())}]",
    ]
    variables = {
        "MASTER_ADDR": address,
        "MASTER_PORT": port,
        "NODE_RANK": place.node_rank,
        "LOCAL_RANK": place.local_rank,
        "RANK": place.rank,
        "WORLD_SIZE": place.world_size,
        PARENT: os.getpid(),
    }
    return subprocess.Popen(command, env=os.environ | {name: str(value) for name, value in variables.items()})
