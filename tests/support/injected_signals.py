"""Stop signals at chosen places of a program: at the first call of each Python function while it runs."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from types import CodeType, FrameType

import torch

Place = tuple[str, int, str]  # file, line and name of a function
Action = Callable[[], int]  # what a process does; returns its exit code


def in_process(action: Action) -> int:
    """The exit code of a forked process that does `action`."""
    if (child := os.fork()) == 0:
        code = 99
        torch.set_num_threads(1)  # a fork has none of its parent's OpenMP threads, and would wait for them for ever
        try:
            code = action()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def called_places(action: Action) -> list[Place]:
    """The functions that `action` calls while a stop signal is an error, in the order of their first calls."""
    places: dict[Place, None] = {}
    codes: set[CodeType] = set()

    def note(code: CodeType) -> None:
        if code not in codes and is_caught():
            codes.add(code)
            places.setdefault(place_of(code))

    watched(action, note)
    return list(places)


def signalled_at(place: Place, action: Action) -> tuple[bool, int]:
    """Whether `action`, in a process of its own, came to the place, where it got a SIGTERM; and its exit code."""
    reader, writer = os.pipe()

    def send(code: CodeType) -> None:
        if code.co_firstlineno == place[1] and place_of(code) == place and is_caught():
            sys.setprofile(None)
            os.write(writer, b"1")
            signal.raise_signal(signal.SIGTERM)

    exit_code = in_process(lambda: watched(action, send))
    os.close(writer)
    with os.fdopen(reader, "rb") as sent:
        return bool(sent.read()), exit_code


def place_of(code: CodeType) -> Place:
    """The place of a function."""
    return code.co_filename, code.co_firstlineno, code.co_qualname


def is_caught() -> bool:
    """Whether a stop signal is an error now."""
    return callable(signal.getsignal(signal.SIGTERM))


def watched(action: Action, see: Callable[[CodeType], object]) -> int:
    """Does `action`, and calls `see` with each Python function that is called."""

    def profile(frame: FrameType, event: str, argument: object) -> None:
        del argument
        if event == "call":
            see(frame.f_code)

    sys.setprofile(profile)
    try:
        return action()
    finally:
        sys.setprofile(None)
