"""Limits of the machine and its network: one sentence with advice, whatever they are wrapped in."""

from __future__ import annotations

import errno
import os
import socket
import ssl
import urllib.error
import zipfile
from http.client import IncompleteRead

import numpy as np
import pytest
import torch

from sliceformer_lab.cli.jobs import as_lab_error
from sliceformer_lab.errors import DataError, Interrupted, LabError, MachineError, machine_error


@pytest.mark.parametrize(
    ("number", "advice"),
    [
        (errno.ENOSPC, "free some space"),
        (errno.EDQUOT, "delete some files"),
        (errno.EACCES, "change its permissions"),
        (errno.EROFS, "choose another place"),
        (errno.EIO, "choose another disk"),
        (errno.EMFILE, "ulimit -n"),
    ],
)
def test_each_error_of_the_disk_has_its_advice(number: int, advice: str) -> None:
    found = as_lab_error(OSError(number, os.strerror(number), "/data/file"))
    assert type(found) is MachineError and found.status == "failed"
    assert str(found).startswith(f"/data/file: {os.strerror(number)}; ") and advice in str(found)


def test_memory_that_runs_out_is_one_sentence() -> None:
    with pytest.raises(MemoryError) as of_numpy:
        np.empty(2**60, dtype=np.uint8)
    with pytest.raises(RuntimeError) as of_torch:
        torch.empty(2**60)
    for error in (of_numpy.value, of_torch.value, MemoryError(), torch.OutOfMemoryError("CUDA out of memory.")):
        sentence = str(as_lab_error(error))
        assert sentence.startswith("memory ran out (") and "data.batch_size" in sentence and "\n" not in sentence


@pytest.mark.parametrize(
    "error",
    [
        ConnectionRefusedError(111, "Connection refused"),
        ConnectionResetError(104, "Connection reset by peer"),
        TimeoutError("timed out"),
        socket.gaierror(-2, "Name or service not known"),
        ssl.SSLError("certificate verify failed"),
        IncompleteRead(b"", 10),
    ],
)
def test_a_failed_connection_is_one_sentence(error: Exception) -> None:
    assert str(as_lab_error(error)).startswith(f"a connection failed ({type(error).__name__}: ")


def test_a_limit_is_found_behind_the_errors_that_followed_from_it() -> None:
    def wrapped(of: Exception, by: Exception) -> Exception:
        with pytest.raises(type(by)) as raised:
            try:
                raise of
            except type(of):
                raise by  # noqa: B904
        return raised.value

    full = OSError(errno.ENOSPC, "No space left on device")
    assert "free some space" in str(machine_error(wrapped(full, zipfile.BadZipFile("open handle"))))
    refused = ConnectionRefusedError(111, "refused")
    assert "a connection failed" in str(machine_error(wrapped(refused, urllib.error.URLError(refused))))
    cut = OSError("4096 requested and 512 written")  # numpy's on a full disk
    of_rust = Exception("No space left on device (os error 28)")  # of tokenizers
    of_hdf5 = OSError("Unable to write (file write failed: errno = 28, error message = 'No space left on device')")
    for error in (cut, of_rust, of_hdf5):
        assert str(machine_error(error, "/data/set")).startswith("/data/set: No space left on device; free some space")


def test_other_errors_keep_their_own_words() -> None:
    damaged = DataError("the file is damaged")
    damaged.__cause__ = ConnectionError()
    stopped = Interrupted("stopped by SIGTERM", 15)
    stopped.__context__ = OSError(errno.ENOSPC, "full")
    assert as_lab_error(damaged) is damaged and machine_error(stopped) is None
    for error in (ValueError("can't allocate memory"), BrokenPipeError(32, "gone"), FileNotFoundError(2, "no", "x")):
        assert machine_error(error) is None
        assert type(as_lab_error(error)) is LabError
