"""Chooses the options that a configuration leaves to the data: batch size, epochs and what a data module adds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sliceformer_lab.config.checked import CheckedConfig, check_config, model_of
from sliceformer_lab.data.spec import Choice
from sliceformer_lab.runs.resume import with_values
from sliceformer_lab.training.build import build_data
from sliceformer_lab.training.interfaces import DataModule
from sliceformer_lab.training.optim import OptimOptions


def choose_options(config: Mapping[str, Any]) -> tuple[CheckedConfig, list[Choice]]:
    """The configuration with every option that follows from the data, and these choices.

    Prepares the data if there is something to choose. Raises DataError.
    """
    data = build_data(config)
    choices = data.choices()
    optim: OptimOptions = model_of(config).optim.build()
    if optim.epochs is None and optim.steps is None:
        choices.append(_epochs(optim, data, _num_processes(config["trainer"])))
    return check_config(with_values(config, {choice.option: choice.value for choice in choices})), choices


def _epochs(optim: OptimOptions, data: DataModule, num_processes: int) -> Choice:
    data.prepare_data()
    data.setup()
    per_step = data.train_batch_size * optim.accumulate * num_processes
    steps_per_epoch = max(1, len(data.splits["train"]) // per_step)
    epochs = optim.epochs_for(steps_per_epoch)
    steps = f"{epochs * steps_per_epoch:,} steps of {per_step} examples; optim.target_steps={optim.target_steps}"
    limits = f"{optim.least_epochs} to {optim.most_epochs or 'any number of'} epochs"
    return Choice("optim.epochs", epochs, f"{steps}, {limits}")


def _num_processes(trainer: Mapping[str, Any]) -> int:
    """Number of processes that share a step, as far as the configuration says it."""
    devices = trainer.get("devices", 1)
    return devices if isinstance(devices, int) and devices > 0 else 1
