"""The process that jobs are forked from.

It has imported the libraries and done nothing else: no random number was drawn, no thread or GPU was used. A job
therefore computes what a process of its own would, bit for bit, and starts in milliseconds. A process that is used for
many jobs would carry state from one to the next.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from types import ModuleType

LIBRARIES = (
    *("sliceformer_lab.sweeps.loaded_code", "sliceformer_lab.training.run"),
    *("matplotlib.pyplot", "sklearn.linear_model", "torchmetrics.classification"),
)


def can_fork() -> bool:
    """Whether this system has fork servers; Windows has none."""
    return "forkserver" in multiprocessing.get_all_start_methods()


def fork_server(modules: Sequence[str]) -> ForkServerContext:
    """The context whose processes are forked from a server with the libraries and `modules`.

    The first call in a process decides the modules and, by the environment at the first fork, the number of threads.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([*LIBRARIES, *modules])
    return context


@contextmanager
def hidden_main() -> Iterator[None]:
    """Hides the main module, such as a caller's script, which a process that starts here would run once more."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def begin_job(lifeline: Connection) -> None:
    """Ends this forked process when the other end of a pipe is closed, as by a SIGKILL of the process that holds it.

    The processes that it starts are its own children, so they end with it. By default the child of a fork server takes
    another fork server, whose processes would outlive it.
    """
    multiprocessing.set_start_method("fork" if sys.platform == "linux" else "spawn", force=True)
    threading.Thread(target=_wait_for_the_end, args=(lifeline,), daemon=True).start()


def _wait_for_the_end(lifeline: Connection) -> None:
    with suppress(EOFError, OSError):
        lifeline.recv()
    os._exit(1)
