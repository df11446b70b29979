"""Errors that a user can fix: printed as one sentence, without a traceback."""

from __future__ import annotations

import errno
import os
import re
from http.client import HTTPException
from importlib import import_module
from importlib.util import find_spec


class LabError(Exception):
    """An error that a user can fix. The message is one sentence: where, what was given, what would work."""

    exit_code = 1
    status = "failed"  # of the run, in its summary


class ConfigError(LabError):
    """A configuration that cannot run."""


class DataError(LabError):
    """Data that is missing, damaged, or not the data set that was asked for."""


class DataWorkerError(DataError):
    """A data worker that ended early; the data themselves may be fine."""


class RunFolderError(LabError):
    """A run folder that cannot be used: locked by another process, incomplete, or of another model."""


class DivergedError(LabError):
    """A loss that is NaN or infinite."""

    status = "diverged"


class NoVerdictError(LabError):
    """An audit that ended without a verdict."""

    exit_code = 3


class MachineError(LabError):
    """A limit of the machine or of its network: a full disk, a refused permission, too little memory."""


class NetworkError(MachineError):
    """A connection that failed."""


class Interrupted(BaseException):
    """A stop by a signal. No `except Exception` of ours or of a library can take it for a failure.

    Whoever works on a job records it and raises it again; the command line alone ends it, with 128 + the signal's
    number as its exit code, as in a shell.
    """

    status = "interrupted"

    def __init__(self, message: str, signal_number: int) -> None:
        super().__init__(message)
        self.exit_code = 128 + signal_number


Ending = LabError | Interrupted  # what ends a job early: both have a sentence, an exit code and a status


ADVICE = {  # of errors of the operating system
    errno.ENOSPC: "free some space on this disk, then start again; a run continues with resume=FOLDER",
    errno.EDQUOT: "your share of this disk is used up: delete some files, then start again",
    errno.EACCES: "you may not use it: change its permissions, or choose another place by paths.outputs or paths.data",
    errno.EPERM: "you may not use it: change its permissions, or choose another place by paths.outputs or paths.data",
    errno.EROFS: "this disk cannot be written: choose another place by paths.outputs or paths.data",
    errno.EIO: "the disk or its network fails: see the system's log, or choose another disk",
    errno.EMFILE: "raise the limit of open files (ulimit -n), or set data.num_workers=0",
}

_CUT = re.compile(r"\d+ requested and \d+ written")  # numpy's error on a full disk, which has no number
_NUMBER = re.compile(r"\(os error (\d+)\)|errno = (\d+)")  # of libraries in Rust, and of HDF5
_NO_MEMORY = re.compile(r"can't allocate memory|out of memory", re.IGNORECASE)


def check_extra(what: str, extra: str, *modules: str) -> None:
    """Raises ConfigError if a module that `what` needs cannot be imported; `extra` of this package brings it.

    It is imported, not only looked for: a package whose own libraries are missing or too old is found all the same.
    """
    for module in modules:
        name, install = module.partition(".")[0].replace("_", "-"), f"pip install 'sliceformer-lab[{extra}]'"
        if find_spec(module.partition(".")[0]) is None:
            raise ConfigError(f"{what} needs {name}; run {install}")
        try:
            import_module(module)
        except Exception as error:  # a broken package may raise anything
            reason = " ".join(str(error).split()) or "no reason given"
            raise ConfigError(
                f"{what} needs {name}, which is installed but cannot be imported ({type(error).__name__}: {reason}); "
                f"run {install} --force-reinstall"
            ) from error


def machine_error(error: BaseException, place: object = None) -> MachineError | None:
    """The limit of the machine behind an error, found in it or in the errors that it followed from; or None.

    `place` is named if the error names no file. Any other LabError says more than the limit behind it.
    """
    found: BaseException | None = error
    while isinstance(found, Exception):
        if isinstance(found, LabError):
            return found if isinstance(found, MachineError) else None
        if limit := _find_limit(found, place):
            return limit
        found = found.__cause__ or (None if found.__suppress_context__ else found.__context__)
    return None


def _find_limit(error: Exception, place: object) -> MachineError | None:
    """The limit of the machine that an error alone says; None for any other error."""
    if isinstance(error, BrokenPipeError):  # of a terminal or a process, not of a network
        return None
    text = next(iter(str(error).splitlines()), "")[:300]
    number = error.errno if isinstance(error, OSError) else None
    if number is None and (named := _NUMBER.search(text)):
        number = int(named[1] or named[2])
    if isinstance(error, OSError) and _CUT.search(text):
        number = errno.ENOSPC
    if number in ADVICE:
        file = getattr(error, "filename", None) or place
        return MachineError(f"{'' if file is None else f'{file}: '}{os.strerror(number)}; {ADVICE[number]}")
    out_of_memory = isinstance(error, RuntimeError) and _NO_MEMORY.search(text)  # torch has no class for both devices
    if isinstance(error, MemoryError) or out_of_memory:
        words = text or "MemoryError"
        return MachineError(f"memory ran out ({words}); try a smaller data.batch_size, encoder or data.max_len")
    if isinstance(error, ConnectionError | TimeoutError | HTTPException) or type(error).__module__ in ("socket", "ssl"):
        words = f"a connection failed ({type(error).__name__}: {text})"
        return NetworkError(f"{words}; look at the network, then start again")
    return None
