"""Making data on all cores: results in the order of the work, whatever the number of processes, and what is left."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import islice
from typing import TypeVar

from sliceformer_lab.errors import DataError

log = logging.getLogger(__name__)

Work = TypeVar("Work")
Made = TypeVar("Made")


def in_order(make: Callable[[Work], Made], work: Iterable[Work], processes: int | None) -> Iterator[Made]:
    """`make(part)` for each part of `work`, which may be endless, in its order; `processes` None is one per core.

    `make` is a function of a module, its argument and result can be pickled; one process works in this one. Raises
    DataError if a process is killed.
    """
    count = processes or cores()
    if count == 1:
        yield from map(make, work)
        return
    parts = iter(work)
    pool = ProcessPoolExecutor(count, initializer=_end_with_the_parent)
    try:
        waiting = deque(pool.submit(make, part) for part in islice(parts, 2 * count))
        while waiting:
            yield waiting.popleft().result()
            waiting.extend(pool.submit(make, part) for part in islice(parts, 1))
    except BrokenProcessPool as error:
        raise DataError(
            "a process that makes data was killed, most often for want of memory; "
            f"try fewer than data.processes={count}, 1 to work in the main process"
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


def _end_with_the_parent() -> None:
    """Leave Ctrl-C to the parent, and end when it has ended, even by a signal that it could not see."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # not the parent's handler
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def cores() -> int:
    """Cores that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)  # Linux; a job on a cluster has only some of the machine's
    return len(affinity(0)) if affinity else os.cpu_count() or 1


class Pace:
    """Tells every so often how much is done, how fast, and how long the rest will take."""

    EVERY = 10.0  # seconds

    def __init__(self, what: str, total: int, *, done: int = 0) -> None:
        """`what` is made `total` times, `done` of them before now."""
        self.what, self.total, self.done_before = what, total, done
        self._start = self._told = time.monotonic()

    def update(self, done: int) -> None:
        """Say that `done` of the total are there."""
        now = time.monotonic()
        made = done - self.done_before
        if now - self._told < self.EVERY or made <= 0:
            return
        self._told = now
        rate = made / (now - self._start)
        left = (self.total - done) / rate / 60
        log.info(f"{done:,} of {self.total:,} {self.what}, {rate:,.0f} a second, {left:.1f} min left")
