"""Runs a function in its own process, with fresh memory, a memory limit, and crashes contained."""

from __future__ import annotations

import gc
import multiprocessing
import resource
import signal
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from sliceformer_lab.runs.processes import end_with_parent, proc_bytes

SHARE_OF_MEMORY = 0.9  # of the free memory when the process starts
PRELOADED = ["sliceformer_lab.commands.benchmark.contest"]  # imported once by the fork server


class ProcessEndedError(Exception):
    """A process that ended without a result."""

    def __init__(self, exit_code: int) -> None:
        self.killed = exit_code == -signal.SIGKILL  # on Linux almost always the out-of-memory killer
        how = f"signal {signal.Signals(-exit_code).name}" if exit_code < 0 else f"exit code {exit_code}"
        super().__init__(f"its process ended with {how}")


def in_child(function: Callable[..., Any], *arguments: Any, limited: bool) -> Any:
    """The result of function(*arguments), run in a child process. Raises its error, or ProcessEndedError if it dies.

    A `limited` child may allocate 90 % of the memory that is free when it starts (Linux only); larger allocations fail
    in the child, before the system kills any process.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    ours, theirs = context.Pipe(duplex=False)
    child = context.Process(target=_send_result, args=(theirs, limited, function, arguments), daemon=True)
    child.start()
    theirs.close()
    try:
        ok, answer = ours.recv()
    except EOFError:
        child.join()
        raise ProcessEndedError(child.exitcode or 0) from None
    finally:
        child.terminate()
        child.join()
        ours.close()
    if not ok:
        raise answer
    return answer


def _send_result(
    connection: Connection, limited: bool, function: Callable[..., Any], arguments: tuple[Any, ...]
) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent terminates this process
    end_with_parent()
    gc.freeze()  # the garbage collector skips imported modules
    if limited:
        _limit_memory()
    try:
        connection.send((True, function(*arguments)))
    except Exception as error:
        connection.send((False, error))


def _limit_memory() -> None:
    free, held = proc_bytes("MemAvailable", "/proc/meminfo"), proc_bytes("VmData")
    if free is not None and held is not None:
        allowed = held + int(SHARE_OF_MEMORY * free)
        resource.setrlimit(resource.RLIMIT_DATA, (allowed, resource.getrlimit(resource.RLIMIT_DATA)[1]))
