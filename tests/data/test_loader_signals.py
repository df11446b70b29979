"""A stop signal while data workers run is reported as the signal, not as a lost worker."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator

import pytest
from torch.utils.data import DataLoader

from sliceformer_lab.data.loader import SeededLoader, _signals_wait
from sliceformer_lab.errors import InterruptedRunError


def test_a_signal_for_which_torch_blames_a_worker_stays_a_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    def batches(self: object) -> Iterator[object]:
        raise RuntimeError("DataLoader worker (pid 1) exited unexpectedly") from InterruptedRunError("stopped", 15)
        yield

    monkeypatch.setattr(DataLoader, "__iter__", batches)
    with pytest.raises(InterruptedRunError, match="stopped"):
        next(iter(SeededLoader([0])))  # type: ignore[arg-type]


@pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="Windows cannot hold signals back")
def test_a_signal_while_workers_start_arrives_after_they_have_started() -> None:
    seen: list[str] = []
    before = signal.signal(signal.SIGUSR1, lambda *_: seen.append("signal"))
    done = threading.Event()
    other = threading.Thread(target=done.wait)  # the system gives it the signals that the main thread blocks
    other.start()
    try:
        with _signals_wait():
            os.kill(os.getpid(), signal.SIGUSR1)
            time.sleep(0.05)
            seen.append("workers started")
    finally:
        done.set()
        other.join()
        signal.signal(signal.SIGUSR1, before)
    assert seen == ["workers started", "signal"]
