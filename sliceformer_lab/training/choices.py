"""Chooses the options that a configuration leaves open: batch size, epochs, precision and what a data module adds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.utilities.seed import isolate_rng

from sliceformer_lab.config.checked import RunPlan
from sliceformer_lab.data.spec import Choice
from sliceformer_lab.training.build import build_task
from sliceformer_lab.training.interfaces import DataModule
from sliceformer_lab.training.optim import OptimOptions
from sliceformer_lab.training.processes.other_processes import num_processes

MAX_LOSS_CHANGE = 0.02  # of a batch's loss, as a share of it
PROCESSOR = Path("/proc/cpuinfo")


def with_choices(plan: RunPlan, data: DataModule) -> tuple[RunPlan, list[Choice]]:
    """The plan with every option that follows from the data, and these choices; the plan never changes after it.

    Prepares the data if there is something to choose. The data module uses its own choices already. Raises DataError.
    """
    choices = data.choices()
    optim: OptimOptions = plan.model.optim.build()
    if optim.epochs is None and optim.steps is None:
        choices.append(_choose_epochs(plan, optim, data))
    if plan.trainer.precision == "auto":
        choices.append(_choose_precision(plan, data))
    return plan.with_options({choice.option: choice.value for choice in choices}) if choices else plan, choices


def count_steps(plan: RunPlan, optim: OptimOptions, data: DataModule) -> int:
    """The optimizer steps of a pass over the training data, or of the part that limit_train_batches leaves of it.

    Prepares the data.
    """
    data.setup()
    examples, processes = len(data.splits["train"]), num_processes(plan.trainer)
    batches = -(-(examples // processes) // data.train_batch_size)  # of each process
    if optim.accumulate > 1:  # then a pass has whole steps only
        batches = examples // (data.train_batch_size * optim.accumulate * processes) * optim.accumulate
    if (limit := plan.trainer.limit_train_batches) is not None:
        batches = min(batches, limit) if isinstance(limit, int) else int(batches * limit)
    return -(-batches // optim.accumulate)


def _choose_epochs(plan: RunPlan, optim: OptimOptions, data: DataModule) -> Choice:
    steps_per_epoch, factor = count_steps(plan, optim, data), data.step_factor
    per_step = data.train_batch_size * optim.accumulate * num_processes(plan.trainer)
    epochs = optim.epochs_for(steps_per_epoch, factor)
    steps = f"{epochs * steps_per_epoch:,} steps of {per_step} examples; optim.target_steps={optim.target_steps}"
    steps += f", {factor} times as many for short texts" if factor > 1 else ""
    limits = f"{optim.least_epochs} to {optim.most_epochs or 'any number of'} epochs"
    return Choice("optim.epochs", epochs, f"{steps}, {limits}")


def _choose_precision(plan: RunPlan, data: DataModule) -> Choice:
    """bf16-mixed where the processor is fast in it and a batch's loss stays the same, else 32-true; with the reason."""
    device, value = device_of(plan.plain), "32-true"
    if device == "cuda" and not torch.cuda.is_bf16_supported(including_emulation=False):
        reason = "this GPU does not compute in bfloat16"
    elif device == "cpu" and not _has_amx():
        reason = "this CPU has no AMX, which makes matrix products in bfloat16 fast"
    elif math.isnan(change := _change_of_loss(plan, data, device)):
        reason = "the loss of a batch is not a number in bfloat16"
    elif change > MAX_LOSS_CHANGE:
        reason = f"bfloat16 changes the loss of a batch by {change:.1%}; it may be used all the same"
    else:
        value, reason = "bf16-mixed", f"it changes the loss of a batch by {change:.2%}"
    return Choice("trainer.precision", value, reason)


def _has_amx() -> bool:
    """Whether the CPU multiplies matrices of bfloat16 in hardware, as far as Linux says."""
    return PROCESSOR.is_file() and "amx_bf16" in PROCESSOR.read_text(encoding="utf-8").split()


def _change_of_loss(plan: RunPlan, data: DataModule, device: str) -> float:
    """How much the loss of one training batch of the untrained model changes in bfloat16, as a share of it."""
    data.setup()
    split = data.splits["train"]
    with isolate_rng(), torch.no_grad():
        pl.seed_everything(plan.seed, verbose=False)
        task = build_task(plan, data.spec).to(device).eval()
        batch = split.batch(list(range(min(data.train_batch_size, len(split))))).to(device)
        exact = task.loss(task(batch), batch.target).float()
        with torch.autocast(device, torch.bfloat16):
            rounded = task.loss(task(batch), batch.target).float()
    return float((rounded - exact).abs() / exact.abs().clamp_min(torch.finfo(torch.float32).tiny))


def device_of(config: Mapping[str, Any]) -> str:
    """The device that times the steps of a configuration: cpu | cuda; the CPU for a GPU without CUDA."""
    accelerator, gpu = config["trainer"]["accelerator"], torch.accelerator.current_accelerator()
    if accelerator == "gpu":
        return "cuda" if gpu is None or gpu.type == "cuda" else "cpu"
    return "cuda" if accelerator == "cuda" or (accelerator == "auto" and torch.cuda.is_available()) else "cpu"
