"""What a run tells its callbacks and loggers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class RunContext:
    """Facts of a run, the positional argument of every callback of ours; its options are keyword-only."""

    folder: Path  # the run folder
    seed: int
    monitor: str | None  # the metric that picks the best epoch; None: the last epoch is scored
    monitor_mode: str  # max | min
