"""Turns the signals that stop a program into errors that a run records, and ends a program that does not stop."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

from sliceformer_lab.errors import Ending, Interrupted
from sliceformer_lab.runs.processes import STOP_SIGNALS, is_first_process
from sliceformer_lab.runs.sweep import resume_word

STOP_GRACE_S = 8.0  # seconds in which a program stops by itself after a signal
CHECKPOINT_GRACE_S = 18.0  # seconds more for a checkpoint; Slurm kills after 30 s unless its KillWait says otherwise
LAST_WORDS_S = 1.5  # seconds for the last words of a program that is ended
REPEATED_SIGNAL_S = 0.5  # seconds in which a repeated signal counts as the same; schedulers send some twice

RecordEnding = Callable[[Ending], None]


def interruption_by(number: int, when: str = "") -> Interrupted:
    """The error for a run that a signal stopped; `when` is appended to its message."""
    return Interrupted(f"stopped by {signal.Signals(number).name}{when}", number)


def interruption_of_run(when: str, folder: Path) -> Interrupted:
    """The error for the signal that was caught, here or in another process; the next signals are ignored.

    `folder` is that of the run, which goes on from it.
    """
    if _watch is not None:
        _watch.raised = True
    return interruption_by(first_signal() or signal.SIGTERM, f" {when}; continue with {resume_word(folder)}")


def stop_behind(error: BaseException) -> BaseException:
    """The stop that a library turned into `error`, or the error itself."""
    if _watch is None or not _watch.raised or isinstance(error, Interrupted):
        return error
    return interruption_by(first_signal() or signal.SIGTERM)


@contextmanager
def signals_as_errors() -> Iterator[None]:
    """Raises Interrupted in the main thread when a stop signal arrives, once.

    Eight seconds after a signal, a thread ends the program if it still runs: a main thread that waits for a data
    worker or another process runs no Python code, and a library may swallow the error. SIGHUP stays ignored if it is,
    as under nohup. A stop that a library has swallowed is raised again at the end. Inside another `signals_as_errors`
    this does nothing.
    """
    global _watch
    if _watch is not None and _watch.owner == os.getpid():
        yield
        return
    outer, watch = _watch, _Watch()
    try:
        with watch.running():
            _watch = watch
            try:
                yield
            except BaseException as error:
                if (stop := stop_behind(error)) is not error:
                    raise stop from error
                raise
        if watch.caught is not None:
            raise interruption_by(watch.caught)
    finally:
        _watch = outer


@contextmanager
def recorded_by(record: RecordEnding) -> Iterator[None]:
    """Lets `record` write the error down if the program has to be ended by force."""
    watch = _watch
    if watch is None:
        yield
        return
    watch.record = record
    try:
        yield
    finally:
        watch.record = None


def catch_signals(*, later: bool) -> None:
    """Installs our handlers again, over a library's. `later`: the first signal is only noted, for `first_signal`."""
    if _watch is not None:
        _watch.install()
        _watch.later = later


def first_signal() -> int | None:
    """The first stop signal that arrived, or None."""
    return None if _watch is None else _watch.caught


@contextmanager
def time_to_save() -> Iterator[None]:
    """Ends a program that is stopping up to CHECKPOINT_GRACE_S seconds later, to write a checkpoint."""
    if (watch := _watch) is None:
        yield
        return
    began, watch.saving = time.monotonic(), CHECKPOINT_GRACE_S
    try:
        yield
    finally:
        watch.saving = 0.0 if watch.end is None else time.monotonic() - began


def end_in_time(error: Ending) -> None:
    """Ends the program eight seconds from now with `error`, unless `no_end` is called before."""
    if _watch is not None:
        _watch.end_in_time(error)


def no_end(error: Ending) -> None:
    """Takes `end_in_time(error)` back."""
    if _watch is not None and _watch.end is not None and _watch.end[1] is error:
        _watch.end = None


class _Watch:
    """The stop signals of this process, and a thread that ends it in time."""

    def __init__(self) -> None:
        self.owner = os.getpid()
        self.caught: int | None = None
        self.later = False
        self.record: RecordEnding | None = None
        self._caught_at = 0.0
        self.raised = False
        self.end: tuple[float, Ending] | None = None  # when to end the process, and why
        self.saving = 0.0  # seconds more
        self._closed = False
        self._reader, self._writer = socket.socketpair()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Installs the handlers and starts the thread; restores the earlier handlers at the end."""
        before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
        self._writer.setblocking(False)
        fd = signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        thread = threading.Thread(target=self._run, name="stop-signals", daemon=True)
        thread.start()
        try:
            self.install()
            yield
        finally:
            self._closed = True  # from now on a signal is only noted
            for number, handler in before.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(fd)
            self._wake()
            thread.join()
            self._reader.close()
            self._writer.close()

    def install(self) -> None:
        """Installs the handler for every stop signal."""
        for number in STOP_SIGNALS:
            if number != getattr(signal, "SIGHUP", None) or signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, self._receive)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        del frame
        if os.getpid() != self.owner or self.raised:  # a forked child has this handler too
            return
        first = self.caught is None
        if first:
            self.caught, self._caught_at = number, time.monotonic()
        elif time.monotonic() - self._caught_at < REPEATED_SIGNAL_S:
            return
        if self._closed or (self.later and first):
            return
        self.raised = True
        raise interruption_by(number, "" if first else " twice")

    def end_in_time(self, error: Ending) -> None:
        """Ends the process after STOP_GRACE_S; the first call counts."""
        self.end = self.end or (time.monotonic() + STOP_GRACE_S, error)
        self._wake()

    def _wake(self) -> None:
        with suppress(OSError):  # a full socket wakes the thread as well
            self._writer.send(b"\0")

    def _run(self) -> None:
        """Waits for a signal, whose number Python writes into the socket at once, whatever the main thread does."""
        while not self._closed:
            left = None
            if (end := self.end) is not None:
                left = end[0] + self.saving - time.monotonic()
                if left <= 0:
                    self._end_process(end[1])
            self._reader.settimeout(left)
            with suppress(TimeoutError):
                for number in self._reader.recv(4096):
                    if number in STOP_SIGNALS:
                        when = "; it did not stop by itself in time and was ended"
                        self.end_in_time(interruption_by(number, when))

    def _end_process(self, error: Ending) -> None:
        words = threading.Thread(target=self._last_words, args=(error,), daemon=True)
        words.start()
        words.join(LAST_WORDS_S)
        os._exit(error.exit_code)

    def _last_words(self, error: Ending) -> None:
        if not is_first_process():
            return
        try:
            if self.record is not None:
                self.record(error)
        finally:  # not print or logging, whose locks the main thread may hold
            os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, f"sliceformer-lab: {error}\n".encode())


_watch: _Watch | None = None


def _in_forked_child() -> None:
    """A forked process must not write its signals into the socket of its parent."""
    if _watch is not None:
        signal.set_wakeup_fd(-1)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_forked_child)
