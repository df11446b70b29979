"""What all processes of a run share: the signals that stop it, and how a child process ends with its parent."""

from __future__ import annotations

import ctypes
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

# The stop signals. Windows has only the first two. Slurm sends SIGTERM, or the one that --signal names.
STOP_SIGNALS = tuple(
    signal.Signals[name]
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2")
    if name in signal.Signals.__members__
)
PARENT = "SLICEFORMER_LAB_PARENT"  # in the environment of the other processes of a distributed run: a process id


def is_first_process() -> bool:
    """Whether this process writes the run folder: a single process, or the first of a distributed run."""
    return process_number() == 0


def process_number() -> int:
    """Number of this process among all of its run: that of its Slurm task, or the one that `start_child` gave it.

    Of a task it follows from its node, however Slurm numbers the tasks.
    """
    variables = os.environ
    if "RANK" in variables or num_tasks() == 1:
        return int(variables.get("RANK", "0"))
    per_node = num_tasks() // int(variables["SLURM_STEP_NUM_NODES"])
    return int(variables["SLURM_NODEID"]) * per_node + int(variables["SLURM_LOCALID"])


def num_tasks() -> int:
    """Number of tasks of the Slurm step that this process belongs to; 1 outside Slurm."""
    return int(os.environ.get("SLURM_STEP_NUM_TASKS", "1"))


def num_cores() -> int:
    """Number of cores that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)  # Linux; a job on a cluster has only some cores of the machine
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def proc_bytes(field: str, file: str = "/proc/self/status") -> int | None:
    """A field of a file in /proc, of this process unless it names another one; None where Linux has no such field."""
    path = Path(file)
    found = re.search(rf"^{field}:\s+(\d+) kB", path.read_text(encoding="ascii"), re.M) if path.exists() else None
    return None if found is None else 1024 * int(found[1])


def process_start(process: int) -> str | None:
    """When a process of this machine started, as a text to compare; None if there is no such process."""
    if sys.platform == "linux":
        try:
            return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[19]  # clock ticks since boot
        except (OSError, IndexError):
            return None
    else:
        asked = subprocess.run(["ps", "-o", "lstart=", "-p", str(process)], capture_output=True, text=True, check=False)
        return asked.stdout.strip() or None


def has_open(process: int, file: Path) -> bool:
    """Whether a process has a file open; only Linux says that, elsewhere True."""
    if sys.platform == "linux":
        try:
            return any(str(link.readlink()) == str(file) for link in Path(f"/proc/{process}/fd").iterdir())
        except OSError:
            return False
    else:
        return True


def ignore_stop_signals() -> None:
    """Leaves the stop signals to the parent process. A scheduler sends them to every process of a job."""
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def end_with_parent(parent: int | None = None) -> None:
    """Ends this process when its parent ends, even if that is killed. `parent` is its process id, if it is known.

    Linux ends it even while it hangs; elsewhere, a thread looks every second.
    """
    parent = parent or os.getppid()
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)
    else:
        threading.Thread(target=_watch_parent, args=(parent,), daemon=True).start()
    if os.getppid() != parent:  # it ended before this call
        os._exit(1)


def _watch_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)
