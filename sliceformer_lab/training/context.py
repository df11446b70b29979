"""The facts of a run that its callbacks and loggers receive."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class RunContext:
    """The positional argument of each of our callbacks; their options are keyword-only."""

    folder: Path  # the run folder
    seed: int
    monitor: str | None  # the metric that selects the best epoch; None: the last epoch is scored
    monitor_mode: str  # max | min
