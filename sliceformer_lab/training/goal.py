"""The metric that selects a run's checkpoint, and its direction."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from sliceformer_lab.config.checked import RunPlan
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


def goal(plan: RunPlan) -> Goal:
    """The metric that selects a run's best epoch. Raises ConfigError if the parts of the plan do not fit together."""
    spec = build_data(plan).spec  # may read a table of the user
    with torch.device("meta"):
        task = build_task(plan, spec)
    return Goal(task.monitor, task.monitor_mode)
