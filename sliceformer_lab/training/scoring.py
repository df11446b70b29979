"""Metrics at one checkpoint, and the facts that a summary gains when its run ends."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytorch_lightning as pl
import torch
from torch import Tensor

from sliceformer_lab.errors import DivergedError
from sliceformer_lab.measures.cost import count_cost
from sliceformer_lab.runs.folder import read_checkpoint, read_metrics
from sliceformer_lab.training.advice import warnings_of
from sliceformer_lab.training.interfaces import DataModule, TaskModule

if TYPE_CHECKING:
    import pandas as pd


def score(
    trainer: pl.Trainer, task: TaskModule, data: DataModule, checkpoint: Path | None, config: Mapping[str, Any]
) -> dict[str, float]:
    """Validation and test metrics at a checkpoint (None: the current weights); the task keeps the predictions.

    With score_test=false there are no test metrics. If the test set also selected the epoch, the names of its metrics
    say so. Raises DivergedError for a loss that is NaN or infinite.
    """
    metrics: dict[str, float] = {}
    test_suffix = "_best_test_epoch" if config["selection"] == "best_test" else ""
    passes = [(trainer.validate, ""), *([(trainer.test, test_suffix)] if scores_test(config) else [])]
    for evaluate, suffix in passes:
        evaluate(task, datamodule=data, ckpt_path=checkpoint, weights_only=True, verbose=False)
        metrics |= {name + suffix: float(value) for name, value in trainer.callback_metrics.items()}
    for name, value in metrics.items():
        if name.startswith(("val/loss", "test/loss")) and not math.isfinite(value):
            raise DivergedError(f"{name} is {value} at the scored checkpoint; try a lower optim.lr or optim.clip_norm")
    return metrics


def results(
    config: Mapping[str, Any],
    folder: Path,
    data: DataModule,
    task: TaskModule,
    scored: Path | None,
    metrics: Mapping[str, float],
    predictions: Mapping[str, Mapping[str, Tensor]],
) -> dict[str, Any]:
    """The facts that a summary gains when its run ends well; `metrics` belong to the checkpoint `scored`."""
    history = read_metrics(folder)
    metric = f"val/{task.monitor}"
    monitor = {"best_val": metric, "best_test": f"test_curve/{task.monitor}"}.get(config["selection"])
    checkpoint = {} if scored is None else read_checkpoint(scored)
    best = {"epoch": checkpoint.get("epoch"), "step": checkpoint.get("global_step")}
    return {
        "protocol": protocol(config, data, task),
        "best": {**best, "metric": metric, "value": metrics.get(metric)},
        "metrics": dict(metrics),
        "chance": task.chance(predictions["test"]["targets"]) if "test" in predictions else None,
        "warnings": warnings_of(task, history, monitor, best["step"]),
        "parameters": num_parameters(task),
        "cost_per_sample": cost_per_sample(task),
        "samples_per_second": _last(history, "train/samples_per_second"),
        "peak_memory_gb": _last(history, "train/peak_memory_gb"),
        **({} if task.optim.stop_at is None else {"steps_to_stop_at": task.stopped_at}),
        **task.more_results(data, predictions),
    }


def scores_test(config: Mapping[str, Any]) -> bool:
    """Whether a run scores the test set; runs of older versions all do."""
    return bool(config.get("score_test", True))


def protocol(config: Mapping[str, Any], data: DataModule, task: TaskModule) -> dict[str, Any]:
    """The facts that two runs must share for their results to be comparable."""
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
        **({} if scores_test(config) else {"score_test": False}),
    }


def num_parameters(task: TaskModule) -> int:
    """Number of trainable parameters."""
    return sum(p.numel() for p in task.parameters() if p.requires_grad)


def cost_per_sample(task: TaskModule) -> dict[str, int]:
    """Multiply-adds, comparisons and moves in the forward pass of one sample."""
    task.eval()
    with torch.no_grad():
        cost = count_cost(lambda: task(task.example()))
    return {"multiply_adds": cost.multiply_adds, "comparisons": cost.comparisons, "moves": cost.moves}


def _last(history: pd.DataFrame, column: str) -> float | None:
    values = history[column].dropna().tolist() if column in history else []
    return float(values[-1]) if values else None
