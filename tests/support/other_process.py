"""Another live process that holds a file or a folder."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

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
