"""Another live process that holds a file or a folder, and waiting for what other processes do."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TypeVar

Value = TypeVar("Value")
HOLD = "with {0}(Path(sys.argv[1])):\n    print('held', flush=True)\n    input()"


@contextmanager
def held_by_another_process(lock: Callable[[Path], AbstractContextManager[Path]], path: Path) -> Iterator[None]:
    """Another process is inside `with lock(path)` meanwhile.

    It is a new process, not a fork: a fork of a process with threads may wait for ever for a thread that it lacks.
    """
    program = f"import sys\nfrom pathlib import Path\nfrom {lock.__module__} import {lock.__name__}\n"
    command = [sys.executable, "-c", program + HOLD.format(lock.__name__), str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin and process.stdout
        assert process.stdout.readline() == "held\n"
        try:
            yield
        finally:
            process.stdin.write("\n")
    assert process.returncode == 0


def wait_for(what: Callable[[], Value], seconds: float = 120) -> Value:
    """The first true value of `what`. Raises TimeoutError."""
    deadline = time.monotonic() + seconds
    while not (value := what()):
        if time.monotonic() > deadline:
            raise TimeoutError
        time.sleep(0.05)
    return value
