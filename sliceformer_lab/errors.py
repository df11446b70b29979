"""Errors that a user can fix: printed as one sentence, without a traceback."""

from __future__ import annotations


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


class InterruptedRunError(LabError):
    """A run stopped by a signal. The exit code is 128 + the signal's number, as in a shell."""

    status = "interrupted"

    def __init__(self, message: str, signal_number: int) -> None:
        super().__init__(message)
        self.exit_code = 128 + signal_number
