"""SIGINT and SIGTERM as errors that a run can record."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from sliceformer_lab.errors import InterruptedRunError

SIGNALS = (signal.SIGINT, signal.SIGTERM)


def interrupted(number: int, when: str = "") -> InterruptedRunError:
    """The error of a run that a signal stopped; `when` is appended to the sentence."""
    return InterruptedRunError(f"stopped by {signal.Signals(number).name}{when}", number)


@contextmanager
def signals_as_errors() -> Iterator[None]:
    """Raise InterruptedRunError in the main thread as soon as SIGINT or SIGTERM comes.

    Left to themselves, Python ends at SIGTERM without unwinding, and Lightning turns a KeyboardInterrupt into exit
    code 1 and ignores Ctrl-C from then on. Loader workers inherit the handler by fork and leave it to this process.
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
