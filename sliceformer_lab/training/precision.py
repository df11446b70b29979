"""trainer.precision=auto: bfloat16 where the processor multiplies it fast and a batch's loss stays the same."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from pytorch_lightning.utilities.seed import isolate_rng

from sliceformer_lab.config.checked import RunPlan
from sliceformer_lab.data.spec import Choice
from sliceformer_lab.training.build import build_task
from sliceformer_lab.training.interfaces import DataModule

MAX_LOSS_CHANGE = 0.02  # of a batch's loss, as a share of it
PROCESSOR = Path("/proc/cpuinfo")


def device_of(config: Mapping[str, Any]) -> str:
    """The device that a configuration trains on: cpu | cuda."""
    accelerator = config["trainer"]["accelerator"]
    is_cuda = accelerator in ("gpu", "cuda") or (accelerator == "auto" and torch.cuda.is_available())
    return "cuda" if is_cuda else "cpu"


def choose_precision(plan: RunPlan, data: DataModule) -> Choice:
    """bf16-mixed or 32-true, with the reason. Prepares the data where a loss must be compared. Raises DataError."""
    device, value = device_of(plan.plain), "32-true"
    if device == "cuda" and not torch.cuda.is_bf16_supported(including_emulation=False):
        reason = "this GPU does not compute in bfloat16"
    elif device == "cpu" and not has_amx():
        reason = "this CPU has no AMX, which makes matrix products in bfloat16 fast"
    elif (change := change_of_loss(plan, data, device)) > MAX_LOSS_CHANGE:
        reason = f"bfloat16 changes the loss of a batch by {change:.1%}; it may be used all the same"
    else:
        value, reason = "bf16-mixed", f"it changes the loss of a batch by {change:.2%}"
    return Choice("trainer.precision", value, reason)


def has_amx() -> bool:
    """Whether the CPU multiplies matrices of bfloat16 in hardware, as far as Linux says."""
    return PROCESSOR.is_file() and "amx_bf16" in PROCESSOR.read_text(encoding="utf-8").split()


def change_of_loss(plan: RunPlan, data: DataModule, device: str) -> float:
    """How much the loss of one training batch of the untrained model changes in bfloat16, as a share of it."""
    data.prepare_data()
    data.setup()
    split = data.splits["train"]
    with isolate_rng(), torch.no_grad():
        task = build_task(plan, data.spec).to(device).eval()
        batch = split.batch(list(range(min(data.train_batch_size, len(split))))).to(device)
        exact = task.loss(task(batch), batch.target).float()
        with torch.autocast(device, torch.bfloat16):
            rounded = task.loss(task(batch), batch.target).float()
    return float((rounded - exact).abs() / exact.abs().clamp_min(torch.finfo(torch.float32).tiny))
