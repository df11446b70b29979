"""What the runs of a configuration are selected by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from sliceformer_lab.training.build import build_data, build_task


@dataclass(frozen=True)
class Goal:
    """The metric that selects a run's best epoch."""

    monitor: str  # such as accuracy
    mode: str  # max | min

    @property
    def sign(self) -> float:
        """The factor that makes larger values better."""
        return 1.0 if self.mode == "max" else -1.0


def goal(config: Mapping[str, Any]) -> Goal:
    """What the runs of a configuration are selected by. Raises ConfigError if its parts do not fit together."""
    spec = build_data(config).spec  # may read a table of the user
    with torch.device("meta"):
        task = build_task(config, spec)
    return Goal(task.monitor, task.monitor_mode)
