"""What a trained model is worth: metrics at one checkpoint, and everything a summary says beside them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytorch_lightning as pl
import torch
from torch import Tensor

from sliceformer_lab.measures.cost import count_cost
from sliceformer_lab.runs.folder import read_checkpoint, read_metrics

if TYPE_CHECKING:
    import pandas as pd


def score(trainer: pl.Trainer, task: Any, data: Any, checkpoint: Path | None, selection: str) -> dict[str, float]:
    """Validation and test metrics at a checkpoint (None: the weights in hand); the task keeps the predictions.

    Figures of a test set that also picked the epoch carry that in their name.
    """
    where = {"datamodule": data, "ckpt_path": checkpoint, "weights_only": True, "verbose": False}
    validation, test = trainer.validate(task, **where), trainer.test(task, **where)  # [] of an empty split
    suffix = "_best_test_epoch" if selection == "best_test" else ""
    found = [(name, value) for part in validation for name, value in part.items()]
    found += [(name + suffix, value) for part in test for name, value in part.items()]
    return {name: float(value) for name, value in found}


def results(
    config: Mapping[str, Any],
    folder: Path,
    data: Any,
    task: Any,
    scored: Path | None,
    metrics: Mapping[str, float],
    predictions: Mapping[str, Mapping[str, Tensor]],
) -> dict[str, Any]:
    """The facts that a summary gains when its run ends well; `scored` is the checkpoint behind the metrics."""
    history = read_metrics(folder)
    metric = f"val/{task.monitor}"
    checkpoint = {} if scored is None else read_checkpoint(scored)
    best = {"epoch": checkpoint.get("epoch"), "step": checkpoint.get("global_step")}
    return {
        "protocol": protocol(config, data, task),
        "best": {**best, "metric": metric, "value": metrics.get(metric)},
        "metrics": dict(metrics),
        "chance": task.chance(predictions["test"]["targets"]) if "test" in predictions else None,
        "parameters": num_parameters(task),
        "cost_per_sample": cost_per_sample(task),
        "samples_per_second": _last(history, "train/samples_per_second"),
        "peak_memory_gb": _last(history, "train/peak_memory_gb"),
    }


def protocol(config: Mapping[str, Any], data: Any, task: Any) -> dict[str, Any]:
    """What a figure must share with another to be comparable."""
    prints = data.fingerprint()
    limit_train, limit_eval = (config["data"].get(f"limit_{part}") for part in ("train", "eval"))
    return {
        "data": prints["name"],
        "official": prints["official"],
        "sha256": prints["sha256"],
        **data.sizes(),
        "sequence_length": task.num_tokens(),
        "selection": config["selection"],
        "epochs": task.optim.epochs if task.optim.max_steps is None else None,
        "steps": task.optim.steps if task.optim.max_steps is None else task.num_steps,
        "limit_train": config["trainer"]["limit_train_batches"] if limit_train is None else limit_train,
        "limit_val": config["trainer"]["limit_val_batches"] if limit_eval is None else limit_eval,
        "limit_test": limit_eval,
    }


def num_parameters(task: Any) -> int:
    """How many numbers are trained."""
    return sum(p.numel() for p in task.parameters() if p.requires_grad)


def cost_per_sample(task: Any) -> dict[str, int]:
    """Multiply-adds, comparisons and moves of one sample's forward pass."""
    task.eval()
    with torch.no_grad():
        cost = count_cost(lambda: task(task.example()))
    return {"multiply_adds": cost.multiply_adds, "comparisons": cost.comparisons, "moves": cost.moves}


def _last(history: pd.DataFrame, column: str) -> float | None:
    values = history[column].dropna().tolist() if column in history else []
    return float(values[-1]) if values else None
