"""Observers of a run: an error in a logger, a picture or a measurement is a warning, and the run goes on."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable

log = logging.getLogger(__name__)


class Observer:
    """Calls what watches a run. At the first error it warns, and from then on it calls nothing."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._works = True

    def run(self, action: Callable[[], object]) -> None:
        """Calls `action`, unless an earlier one failed. Raises Interrupted at a signal."""
        if not self._works:
            return
        try:
            action()
        except Exception as error:
            self._works = False
            warn_of(self._name, error)


def warn_of(observer: str, error: Exception) -> None:
    """Prints one line for an error in an observer; its traceback goes to the log file."""
    text = next(iter(str(error).splitlines()), "")[:300]
    log.warning(f"{observer} stopped ({type(error).__name__}: {text}); the run goes on without it")
    log_traceback(error)


def log_traceback(error: BaseException) -> None:
    """Writes an error's traceback to the log files, but not to the terminal."""
    text = "".join(traceback.format_exception(error))
    record = logging.LogRecord(log.name, logging.ERROR, __file__, 0, text, None, None)
    for handler in logging.getLogger().handlers:
        if isinstance(handler, logging.FileHandler):
            handler.handle(record)
