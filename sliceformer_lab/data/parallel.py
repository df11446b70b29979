"""Work on all cores: results in the order of the work for any number of processes, and a log of the remaining time.

Written by hand because joblib's workers outlive a main process that is killed, and start anew instead of forking.
"""

from __future__ import annotations

import logging
import multiprocessing
import signal
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import islice
from multiprocessing.connection import Connection
from typing import Generic, TypeVar

from sliceformer_lab.errors import DataError
from sliceformer_lab.runs.processes import end_with_parent, ignore_stop_signals, num_cores

log = logging.getLogger(__name__)

Work = TypeVar("Work")
Result = TypeVar("Result")


def in_order(function: Callable[[Work], Result], work: Iterable[Work], processes: int | None) -> Iterator[Result]:
    """`function(part)` for each part of `work`, which may be endless, in its order; `processes` None means all cores.

    `function` belongs to a module, and its argument and result can be pickled; a single process is the main process.
    Raises DataError if a process is killed.
    """
    count = processes or num_cores()
    if count == 1:
        yield from map(function, work)
        return
    parts = iter(work)
    pool = ProcessPoolExecutor(count, initializer=_start_worker)
    try:
        waiting = deque(pool.submit(function, part) for part in islice(parts, 2 * count))
        while waiting:
            yield waiting.popleft().result()
            waiting.extend(pool.submit(function, part) for part in islice(parts, 1))
    except BrokenProcessPool as error:
        raise DataError(
            "a process that prepares data was killed, most often because memory ran out; "
            f"try fewer than data.processes={count}, 1 to work in the main process"
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


class LimitedProcess(Generic[Work, Result]):
    """Calls a function in a process of its own, which is killed if a call takes too long.

    Nothing else ends compiled code that keeps Python's lock. Arguments and results can be pickled; results are not
    None. A process starts at the first call and after each one that was killed.
    """

    def __init__(self, function: Callable[[Work], Result], seconds: float) -> None:
        self._function, self._seconds = function, seconds
        self._process: multiprocessing.Process | None = None
        self._pipe: Connection | None = None

    def __call__(self, work: Work) -> Result | None:
        """`function(work)`, its error too; None if it takes longer than the limit.

        Raises DataError if the process is killed twice.
        """
        try:
            return self._ask(work)
        except (EOFError, ConnectionError):
            pass  # it may have died between two calls: Linux ends a process with the thread that started it
        try:
            return self._ask(work)
        except (EOFError, ConnectionError) as error:
            raise DataError(
                "a process that prepares data was killed, probably at the memory limit; free memory and start again"
            ) from error

    def _ask(self, work: Work) -> Result | None:
        if self._pipe is None:
            self._pipe, theirs = multiprocessing.Pipe()
            self._process = multiprocessing.Process(target=_answer_requests, args=(self._function, theirs), daemon=True)
            self._process.start()
            theirs.close()
            self._pipe.recv()  # it is ready
        done = False
        try:
            self._pipe.send(work)
            if not self._pipe.poll(self._seconds):
                return None
            result: Result | Exception = self._pipe.recv()
            done = True
        finally:
            if not done and self._process is not None:
                self._process.kill()
                self._process.join()
                self._pipe.close()
                self._pipe = None
        if isinstance(result, Exception):
            raise result
        return result


def _answer_requests(function: Callable[[Work], Result], pipe: Connection) -> None:
    _start_worker()
    pipe.send(None)
    while True:
        try:
            work = pipe.recv()
        except EOFError:
            return
        try:
            answer: Result | Exception = function(work)
        except Exception as error:
            answer = error
        pipe.send(answer)


def _start_worker() -> None:
    ignore_stop_signals()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # by which the pool ends a process
    end_with_parent()


class Pace:
    """Logs every ten seconds how much of the work is done, how fast, and how long the rest will take."""

    EVERY = 10.0  # seconds

    def __init__(self, unit: str, total: int) -> None:
        """`total` pieces of `unit` are made."""
        self.unit, self.total = unit, total
        self._first: tuple[float, int] | None = None  # time and pieces of the first update; processes start before it
        self._last_logged = 0.0

    def update(self, done: int) -> None:
        """Takes note that `done` of the total are made."""
        now = time.monotonic()
        if self._first is None:
            self._first, self._last_logged = (now, done), now
        start, made_before = self._first
        if now - self._last_logged < self.EVERY or done <= made_before:
            return
        self._last_logged = now
        rate = (done - made_before) / (now - start)
        left = (self.total - done) / rate / 60
        log.info(f"{done:,} of {self.total:,} {self.unit}, {rate:,.0f} a second, {left:.1f} min left")


def paced(results: Iterable[Result], unit: str, total: int) -> Iterator[Result]:
    """The results, `total` pieces of `unit`, with a log of their pace."""
    pace = Pace(unit, total)
    for number, result in enumerate(results, start=1):
        yield result
        pace.update(number)
