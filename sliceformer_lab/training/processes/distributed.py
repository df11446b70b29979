"""What the processes of one run decide and know together."""

from __future__ import annotations

from typing import TypeVar

import torch.distributed as dist
from pytorch_lightning import Trainer
from torch import Tensor

State = TypeVar("State")


def any_process(trainer: Trainer, here: Tensor | bool) -> bool:
    """Whether a condition holds in at least one process. All processes must call it."""
    return bool(trainer.strategy.reduce_boolean_decision(bool(here), all=False))


def of_all_processes(state: State) -> list[State]:
    """The states of all processes, by their numbers. All processes must call it."""
    if not (dist.is_available() and dist.is_initialized()):
        return [state]
    states: list[State] = [state] * dist.get_world_size()
    dist.all_gather_object(states, state)
    return states
