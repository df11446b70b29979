"""The facts of a run that its callbacks and loggers receive."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, kw_only=True)
class RunContext:
    """The positional argument of a callback that asks for it; its options are keyword-only."""

    folder: Path  # the run folder, or that of a stage in it
    seed: int
    monitor: str | None  # the metric that selects the best epoch; None: the last epoch is scored
    monitor_mode: str  # max | min
    resume: Path | None = None  # what to give as resume=, if `folder` is that of a stage
    identity: Mapping[str, Any] = field(default_factory=dict)  # what its checkpoints keep of the run: `identity_of`

    def score(self, value: float) -> float:
        """The monitored metric as a number that is larger where it is better; NaN and infinity are the worst."""
        if not math.isfinite(value):
            return -math.inf
        return value if self.monitor_mode == "max" else -value
