"""Other processes: one that runs Python to its end, one that holds a file or a folder, and waiting for what they do."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TypeVar

Value = TypeVar("Value")
HOLD = "with {0}(Path(sys.argv[1])):\n    print('held', flush=True)\n    input()"


def run_python(*words: str, cwd: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs Python with these words to its end, which comes within five minutes; it has these variables too."""
    return subprocess.run(
        [sys.executable, *words],
        cwd=cwd,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )


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
