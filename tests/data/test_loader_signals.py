"""A stop signal while data workers run is reported as the signal, not as a lost worker."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest

from sliceformer_lab.data.loader import _signals_wait


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
