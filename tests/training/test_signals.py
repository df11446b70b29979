"""A stop signal ends a process in time, whatever it does, and its children with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest
from support.other_process import wait_for

START = """
import ctypes, os, signal, subprocess, sys, time
from pathlib import Path
from sliceformer_lab.training.processes import signals

signals.STOP_GRACE_S, signals.CHECKPOINT_GRACE_S = 0.5, 1.0
MUTEX = ctypes.create_string_buffer(64)

def hang():
    try:
        print("ready", flush=True)
        time.sleep(60)
    except BaseException:
        time.sleep(60)

with signals.signals_as_errors(), signals.recorded_by(lambda error: Path("status").write_text(error.status)):
"""
CHILD = "from sliceformer_lab.runs.processes import end_with_parent as e; e(); print(1, flush=True); input()"


def start(folder: Path, *body: str, before: str = "") -> subprocess.Popen[str]:
    """A process inside `signals_as_errors`, once it has printed a line. It imports no torch."""
    ignore = f"\nsignal.signal(signal.{before})\n" if before else ""
    script = START.replace("\nwith", f"{ignore}\nwith") + "".join(f"    {line}\n" for line in body)
    command = [sys.executable, "-c", script]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, cwd=folder, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
    assert process.stdout.readline().strip()
    return process


def runs(pid: int) -> bool:
    """Whether a process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize(
    ("number", "body"),
    [
        (signal.SIGTERM, "hang()"),
        (signal.SIGUSR1, "signals.catch_signals(later=True); hang()"),
        (signal.SIGHUP, "print(1, flush=True); [ctypes.CDLL(None).pthread_mutex_lock(MUTEX) for _ in range(2)]"),
    ],
    ids=["the error is swallowed", "the batch never ends", "the main thread waits in C"],
)
def test_a_process_that_does_not_stop_is_ended_in_time_and_recorded(tmp_path: Path, number: int, body: str) -> None:
    process = start(tmp_path, body)
    time.sleep(0.2)  # until the main thread waits
    sent = time.monotonic()
    process.send_signal(number)
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 128 + number and time.monotonic() - sent < 4
    assert errors.count(f"stopped by {signal.Signals(number).name}") == 1 and "Traceback" not in errors
    assert (tmp_path / "status").read_text() == "interrupted"


def test_a_checkpoint_that_is_being_written_has_more_time(tmp_path: Path) -> None:
    wait = "while signals.first_signal() is None: time.sleep(0.01)"
    process = start(
        tmp_path,
        "signals.catch_signals(later=True); print(1, flush=True)",
        wait,
        "with signals.time_to_save(): hang()",
    )
    sent = time.monotonic()
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=20)
    assert 1.4 < time.monotonic() - sent < 6


def test_a_second_signal_does_not_disturb_the_record(tmp_path: Path) -> None:
    body = (
        "print(1, flush=True); time.sleep(60)",
        "except BaseException: time.sleep(0.3); Path('status').write_text('kept')",
    )
    process = start(tmp_path, "try:", f"    {body[0]}", body[1])
    for _ in range(3):
        process.send_signal(signal.SIGTERM)
        time.sleep(0.1)
    process.communicate(timeout=20)
    assert (tmp_path / "status").read_text() == "kept"


def test_hup_stays_ignored_under_nohup(tmp_path: Path) -> None:
    process = start(
        tmp_path, "print(1, flush=True); input(); print(signals.first_signal())", before="SIGHUP, signal.SIG_IGN"
    )
    process.send_signal(signal.SIGHUP)
    printed, _ = process.communicate("go on\n", timeout=20)
    assert (process.returncode, printed) == (0, "None\n")


def test_children_end_with_their_parent_even_if_both_cannot_react(tmp_path: Path) -> None:
    child = (
        f"child = subprocess.Popen([sys.executable, '-c', {CHILD!r}], stdin=subprocess.PIPE, stdout=subprocess.PIPE)"
    )
    process = start(tmp_path, child, "child.stdout.readline(); hang()")
    (number,) = map(int, Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split())
    os.kill(number, signal.SIGSTOP)
    process.kill()
    process.communicate(timeout=20)
    wait_for(lambda: not runs(number))


def test_ctrl_c_while_the_program_is_imported_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "hydra").mkdir()  # the first large package that is imported
    (tmp_path / "hydra" / "__init__.py").write_text(
        "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(5)\n"
    )
    done = subprocess.run(  # SIGINT as at a terminal: what starts the tests in the background ignores it
        [sys.executable, "-m", "sliceformer_lab"],
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (130, "sliceformer-lab: stopped by SIGINT\n")
