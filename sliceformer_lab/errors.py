"""Errors that are the user's to mend: told in one sentence, without a traceback."""

from __future__ import annotations


class LabError(Exception):
    """Something a user can mend. The message is one sentence: where, what was given, what would work."""

    exit_code = 1
    status = "failed"  # of the run, in its summary


class ConfigError(LabError):
    """A configuration that cannot run."""


class DataError(LabError):
    """Data that is missing, damaged or not what it says it is."""


class RunFolderError(LabError):
    """A run folder that cannot be used: held by another process, incomplete, or of another model."""


class DivergedError(LabError):
    """A loss that is no longer a number."""

    status = "diverged"


class InterruptedRunError(LabError):
    """A run stopped by a signal; exits with 128 + its number, as a shell would."""

    status = "interrupted"

    def __init__(self, message: str, signal_number: int) -> None:
        super().__init__(message)
        self.exit_code = 128 + signal_number
