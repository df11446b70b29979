"""Metrics at one checkpoint, and the facts that a summary gains when its run ends."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytorch_lightning as pl
import torch

from sliceformer_lab.config.checked import RunPlan
from sliceformer_lab.data.sequences.base import SequenceSplit
from sliceformer_lab.errors import DivergedError
from sliceformer_lab.measures.call_cost import in_turns
from sliceformer_lab.measures.cost import count_cost
from sliceformer_lab.runs.folder import load_weights, read_checkpoint, read_metrics, scored_checkpoint
from sliceformer_lab.runs.ledger import record_evaluation
from sliceformer_lab.runs.processes import is_first_process
from sliceformer_lab.training.build import build_task
from sliceformer_lab.training.choices import device_of
from sliceformer_lab.training.fitting import run_context
from sliceformer_lab.training.interfaces import DataModule, TaskModule
from sliceformer_lab.training.processes.sharding import is_sharded
from sliceformer_lab.training.results.advice import warnings_of
from sliceformer_lab.training.results.predicted import PredictedSplits
from sliceformer_lab.training.trainer import autocast

if TYPE_CHECKING:
    import pandas as pd

MAX_TIMED_INPUTS = 32


def score(
    trainer: pl.Trainer,
    task: TaskModule,
    data: DataModule,
    checkpoint: Path | None,
    plan: RunPlan,
    thresholds: Sequence[float] = (),
) -> tuple[dict[str, float], PredictedSplits]:
    """Validation and test metrics at a checkpoint (None: the current weights), and the predictions of all processes.

    `thresholds` of labels are those that training chose; without them validation chooses them. With score_test=false
    there are no test metrics. If the test set also selected the epoch, the names of its metrics say so. Raises
    DivergedError for a loss that is NaN or infinite.
    """
    metrics: dict[str, float] = {}
    test_suffix = "_best_test_epoch" if plan.selection == "best_test" else ""
    passes = [(trainer.validate, ""), *([(trainer.test, test_suffix)] if plan.score_test else [])]
    for evaluate, suffix in passes:
        with torch.random.fork_rng():
            torch.manual_seed(plan.seed)  # some attentions draw tokens in evaluation too
            evaluate(task, datamodule=data, ckpt_path=checkpoint, weights_only=True, verbose=False)
        metrics |= {name + suffix: float(value) for name, value in trainer.callback_metrics.items()}
    predictions = task.gathered_predictions()
    for name, value in task.decided_metrics(predictions, thresholds).items():
        metrics[name + (test_suffix if name.startswith("test/") else "")] = value
    for name, value in metrics.items():
        if name.startswith(("val/loss", "test/loss")) and not math.isfinite(value):
            raise DivergedError(f"{name} is {value} at the scored checkpoint; try a lower optim.lr or optim.clip_norm")
    return metrics, predictions


@dataclass(frozen=True)
class Outputs:
    """A scored training."""

    task: TaskModule  # with all its weights, those of the checkpoint
    checkpoint: Path | None  # None: a dry run, which saves none
    steps: int  # of the training
    steps_to_stop_at: int | None  # None: the training has not reached `optim.stop_at`
    metrics: Mapping[str, float]
    predictions: PredictedSplits  # of all processes


def score_selected(plan: RunPlan, trainer: pl.Trainer, task: TaskModule, data: DataModule, folder: Path) -> Outputs:
    """The scores and predictions of a fitted task at the checkpoint that the selection rule picks."""
    steps, reached = trainer.global_step, task.stopped_at  # before loading a checkpoint, which has its own
    checkpoint = None if plan.trainer.fast_dev_run else scored_checkpoint(plan.selection, folder)
    metrics, predictions = score(trainer, task, data, checkpoint, plan)
    count_evaluation(plan, data, folder)
    return Outputs(_gather_task(task, plan, data, checkpoint), checkpoint, steps, reached, metrics, predictions)


def count_evaluation(plan: RunPlan, data: DataModule, folder: Path) -> None:
    """Adds a scoring of the test set by a run to the ledger beside the data."""
    if plan.score_test and is_first_process() and not plan.trainer.fast_dev_run:
        record_evaluation(plan.plain, folder, data.digests()["test"])


def _gather_task(task: TaskModule, plan: RunPlan, data: DataModule, checkpoint: Path | None) -> TaskModule:
    """The task with all its weights, those of the checkpoint, in one process."""
    if not is_sharded(task):
        return task
    whole = build_task(plan, data.spec)
    whole.num_steps = task.num_steps
    if checkpoint is not None:
        load_weights(whole, checkpoint)
    return whole


def results(plan: RunPlan, folder: Path, data: DataModule, outputs: Outputs) -> dict[str, Any]:
    """The facts that a summary gains when its run ends well."""
    task, scored, predictions = outputs.task, outputs.checkpoint, outputs.predictions
    history = read_metrics(folder)
    metric, monitor = f"val/{task.monitor}", run_context(plan, folder, task).monitor
    checkpoint = {} if scored is None else read_checkpoint(scored)
    best = {"epoch": checkpoint.get("epoch"), "step": checkpoint.get("global_step")}
    about, unit = data.about(), data.target_unit()
    return {
        "protocol": protocol(plan, data, task),
        **({} if about is None else {"data_about": about}),
        **({} if unit is None else {"unit": unit}),
        "best": {**best, "metric": metric, "value": outputs.metrics.get(metric)},
        "metrics": dict(outputs.metrics),
        "chance": task.chance(predictions["test"]["targets"]) if "test" in predictions else None,
        "warnings": warnings_of(task, history, monitor, best["step"]),
        "parameters": num_parameters(task),
        "cost_per_sample": cost_per_sample(task, mean := _mean_length(task, data)),
        **({} if mean is None else {"mean_length": mean, "cost_of_longest": cost_per_sample(task)}),
        "samples_per_second": _last_value(history, "train/samples_per_second"),
        "prediction": prediction_speed(plan, task, data),
        "peak_memory_gb": _last_value(history, "train/peak_memory_gb"),
        **({} if task.optim.stop_at is None else {"steps_to_stop_at": outputs.steps_to_stop_at}),
        **task.more_results(data, predictions),
    }


def protocol(plan: RunPlan, data: DataModule, task: TaskModule) -> dict[str, Any]:
    """The facts that two runs must share for their results to be comparable."""
    prints = data.fingerprint()
    return {
        "data": prints["name"],
        "official": prints["official"],
        "sha256": prints["sha256"],
        **data.sizes(),
        "sequence_length": task.num_tokens(),
        "selection": plan.selection,
        "epochs": task.optim.epochs if task.optim.max_steps is None else None,
        "steps": task.optim.steps if task.optim.max_steps is None else task.num_steps,
        "limit_train": data.limit_train,
        "limit_val": data.limit_eval,
        "limit_test": data.limit_eval,
        "limit_train_batches": plan.trainer.limit_train_batches,
        "limit_val_batches": plan.trainer.limit_val_batches,
        **({} if plan.score_test else {"score_test": False}),
    }


def num_parameters(task: TaskModule) -> int:
    """Number of trainable parameters."""
    return sum(p.numel() for p in task.parameters() if p.requires_grad)


def _mean_length(task: TaskModule, data: DataModule) -> int | None:
    """The mean number of tokens of a training sequence, rounded up; None where all have the same, and for pairs."""
    example, train = task.example(), data.splits["train"]
    if not isinstance(train, SequenceSplit) or train.pad_to_max_len or len(example.inputs) != len(example):
        return None
    return max(1, math.ceil(float(train.lengths().mean())))


def cost_per_sample(task: TaskModule, length: int | None = None) -> dict[str, int]:
    """Multiply-adds, comparisons and moves in the forward pass of one sample, cut to `length` tokens."""
    task.eval()
    example = task.example()
    if length is not None:
        example = replace(example, inputs=example.inputs[:, :length])
    with torch.no_grad():
        cost = count_cost(lambda: task(example))
    return {"multiply_adds": cost.multiply_adds, "comparisons": cost.comparisons, "moves": cost.moves}


def prediction_speed(plan: RunPlan, task: TaskModule, data: DataModule) -> dict[str, float]:
    """Milliseconds of the forward pass of one input of the largest size, and inputs a second in batches of so many."""
    split, device = data.splits["train"], torch.device(device_of(plan.plain))
    size = min(data.eval_batch_size, MAX_TIMED_INPUTS, len(split))
    before = task.device  # Lightning moves it to the CPU at its end
    task.to(device)
    one, many = task.eval().example().to(device), split.batch(list(range(size))).to(device)
    with torch.no_grad(), autocast(device.type, plan.trainer.precision):
        alone = in_turns({1: lambda: task(one)}, 3, 1, device.type)[1]
        (together,) = in_turns({size: lambda: task(many)}, 1, 1, device.type)[size]
    task.to(before)
    return {"latency_ms": 1e3 * statistics.median(alone), "inputs_per_second": size / together, "batch": size}


def _last_value(history: pd.DataFrame, column: str) -> float | None:
    values = history[column].dropna().tolist() if column in history else []
    return float(values[-1]) if values else None
