"""Turns SIGINT and SIGTERM into errors that a run can record."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from sliceformer_lab.errors import InterruptedRunError

SIGNALS = (signal.SIGINT, signal.SIGTERM)


def interrupted(number: int, when: str = "") -> InterruptedRunError:
    """The error for a run that a signal stopped; `when` is appended to its message."""
    return InterruptedRunError(f"stopped by {signal.Signals(number).name}{when}", number)


@contextmanager
def signals_as_errors() -> Iterator[None]:
    """Raises InterruptedRunError in the main thread when SIGINT or SIGTERM arrives.

    By default SIGTERM ends Python without cleanup, and Lightning turns a KeyboardInterrupt into exit code 1 and then
    ignores Ctrl-C. Loader workers inherit the handler when they are forked, so it ignores other processes.
    """
    owner = os.getpid()

    def stop(number: int, frame: FrameType | None) -> None:
        del frame
        if os.getpid() == owner:
            raise interrupted(number)

    before = {number: signal.signal(number, stop) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
