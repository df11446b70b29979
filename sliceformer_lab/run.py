"""One run, in order: build, check, fit, score, record."""

from __future__ import annotations

import logging
import signal
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import numpy as np
import pytorch_lightning as pl
import torch
from omegaconf import OmegaConf
from pytorch_lightning.utilities import rank_zero_only

from sliceformer_lab.analysis.cost import count_cost
from sliceformer_lab.analysis.plots import plot_curves
from sliceformer_lab.build import build_data, build_task
from sliceformer_lab.checkpoint_io import AtomicCheckpointIO
from sliceformer_lab.config import check_options, check_root, construct
from sliceformer_lab.context import RunContext
from sliceformer_lab.errors import InterruptedRunError, RunFolderError
from sliceformer_lab.loggers import csv_logger, read_metrics
from sliceformer_lab.record import (
    CONFIG,
    PREDICTIONS,
    checkpoint_file,
    claimed,
    load_weights,
    read_checkpoint,
    read_summary,
    write_json,
)
from sliceformer_lab.summary import Summary, compare_metrics, end_notes, print_summary

log = logging.getLogger(__name__)

Config = Mapping[str, Any]


def run(config: Config, folder: Path) -> float | None:
    """Train and score, or score again, what the resolved configuration describes; everything lands in `folder`.

    Returns the monitored validation metric. Raises LabError for what the user can mend; the summary records it.
    """
    check_root(config)
    _quieten()
    if rank_zero_only.rank > 0:
        return train(config, folder, None)  # the other processes of a distributed run write nothing
    before = signal.signal(signal.SIGTERM, _stop)
    try:
        with claimed(folder):
            return evaluate(config, folder) if config["mode"] == "eval" else _recorded(config, folder)
    except KeyboardInterrupt:
        raise InterruptedRunError("stopped by SIGINT", signal.SIGINT) from None
    finally:
        signal.signal(signal.SIGTERM, before)


def _quieten() -> None:
    """Lightning's advice and progress notes, which a run's own lines and summary replace; its warnings stay."""
    logging.getLogger("pytorch_lightning").setLevel(logging.WARNING)
    for message in (".*does not have many workers", ".*smaller than the logging interval", ".*LeafSpec"):
        warnings.filterwarnings("ignore", message)


def _recorded(config: Config, folder: Path) -> float | None:
    OmegaConf.save(OmegaConf.create(dict(config)), folder / CONFIG)
    summary = Summary(config, folder)
    summary.update()
    log.info(f"{summary.content['name']}: seed {config['seed']}, folder {folder}")
    try:
        return train(config, folder, summary)
    except BaseException as error:
        summary.fail(error)
        raise
    finally:
        _close_wandb()


def train(config: Config, folder: Path, summary: Summary | None) -> float | None:
    """Fit, score the selected epoch on validation and test, and record it (in the first process)."""
    pl.seed_everything(config["seed"], verbose=False)
    data = build_data(config)
    task = build_task(config, data.spec)
    trainer = build_trainer(config, folder, task)
    last = checkpoint_file(folder, "last")
    if last is None:
        task.initialise()
    else:
        read_checkpoint(last)  # told in a sentence if it is damaged
    trainer.fit(task, datamodule=data, ckpt_path=last, weights_only=True)
    during_fit = {name: float(value) for name, value in trainer.callback_metrics.items()}
    kept = None if trainer.fast_dev_run else scored_checkpoint(config, folder)
    metrics = score(trainer, task, data, kept, config["selection"])
    predictions = {split: outputs.gathered() for split, outputs in task.predictions.items()}
    if summary is None:
        return None
    if not trainer.fast_dev_run:
        write_predictions(folder, predictions)
        plot_curves(read_metrics(folder), folder / "curves.png")
    summary.update(
        status="ok",
        protocol=protocol(config, data, task),
        metrics=metrics,
        best={"epoch": kept and read_checkpoint(kept)["epoch"], "monitor": f"val/{task.monitor}"},
        chance=task.chance(predictions["test"]["targets"]),
        parameters=sum(p.numel() for p in task.parameters() if p.requires_grad),
        cost_per_sample=cost_per_sample(task),
        samples_per_second=during_fit.get("train/samples_per_second"),
        peak_memory_gb=during_fit["train/peak_memory_gb"],
    )
    print_summary(summary.content, folder, end_notes(summary.content))
    return metrics[f"val/{task.monitor}"]


def evaluate(config: Config, folder: Path) -> float | None:
    """Score the scored checkpoint of a finished run again and set the figures beside the recorded ones."""
    recorded = read_summary(folder)
    data = build_data(config)
    task = build_task(config, data.spec)
    kept = scored_checkpoint(config, folder)
    load_weights(task, kept)
    trainer = build_trainer(config, folder, task)
    metrics = score(trainer, task, data, None, config["selection"])
    write_json(folder / "eval.json", {"checkpoint": kept.name, "metrics": metrics})
    compare_metrics(recorded.get("metrics", {}), metrics)
    return metrics[f"val/{task.monitor}"]


def scored_checkpoint(config: Config, folder: Path) -> Path:
    """The checkpoint that the selection rule scores. Raises RunFolderError if the run has none."""
    name = "last" if config["selection"] == "last" else "best"
    file = checkpoint_file(folder, name)
    if file is None:
        raise RunFolderError(f"{folder} has no checkpoints/{name}.ckpt; the run did not finish an epoch")
    return file


def build_trainer(config: Config, folder: Path, task: Any) -> pl.Trainer:
    """Lightning's trainer with the configured callbacks and loggers, in the run folder."""
    split = {"best_val": "val", "best_test": "test_curve", "last": None}[config["selection"]]
    monitor = f"{split}/{task.monitor}" if split else None
    context = RunContext(folder=folder, seed=config["seed"], monitor=monitor, monitor_mode=task.monitor_mode)
    callbacks = [
        construct(node, *([context] if _is_ours(node) else []), where=f"callbacks.{name}")
        for name, node in config["callbacks"].items()
    ]
    loggers = [csv_logger(folder)] if rank_zero_only.rank == 0 else []
    if config["logger"]:
        loggers.append(construct(config["logger"], config, folder, where="logger"))
    kind = check_options(config["trainer"], "trainer")
    options = {name: value for name, value in config["trainer"].items() if name != "_target_"}
    trainer: pl.Trainer = kind(
        **options,
        default_root_dir=folder,
        max_epochs=task.optim.epochs,
        gradient_clip_val=task.optim.clip_norm,
        callbacks=callbacks,
        logger=loggers,
        plugins=[AtomicCheckpointIO()],
        num_sanity_val_steps=0,
        enable_model_summary=False,
        enable_progress_bar=any("Progress" in type(callback).__name__ for callback in callbacks),
        use_distributed_sampler=False,
    )
    return trainer


def score(trainer: pl.Trainer, task: Any, data: Any, checkpoint: Path | None, selection: str) -> dict[str, float]:
    """Validation and test metrics at a checkpoint (None: the weights in hand); keeps the predictions in the task."""
    where = {"datamodule": data, "ckpt_path": checkpoint, "weights_only": True, "verbose": False}
    found = {**trainer.validate(task, **where)[0], **trainer.test(task, **where)[0]}
    suffix = "_best_test_epoch" if selection == "best_test" else ""
    return {name + suffix * name.startswith("test/"): float(value) for name, value in found.items()}


def protocol(config: Config, data: Any, task: Any) -> dict[str, Any]:
    """What a figure must share with another to be comparable."""
    prints = data.fingerprint()
    return {
        "data": prints["name"],
        "official": prints["official"],
        "sha256": prints["sha256"],
        **data.sizes(),
        "sequence_length": task.num_tokens(),
        "selection": config["selection"],
        "epochs": task.optim.epochs,
        "limit_train": config["data"].get("limit_train"),
    }


def write_predictions(folder: Path, predictions: Mapping[str, Mapping[str, torch.Tensor]]) -> None:
    """predictions.npz: {val,test}_{ids,targets,logits}, logits in fp16."""
    arrays = {f"{split}_{name}": part.numpy() for split, parts in predictions.items() for name, part in parts.items()}
    unfinished = folder / f"unfinished-{PREDICTIONS}"
    np.savez_compressed(unfinished, **arrays)
    unfinished.replace(folder / PREDICTIONS)


def cost_per_sample(task: Any) -> dict[str, int]:
    """Multiply-adds, comparisons and moves of one sample's forward pass."""
    task.eval()
    with torch.no_grad():
        cost = count_cost(lambda: task(task.example()))
    return {"multiply_adds": cost.multiply_adds, "comparisons": cost.comparisons, "moves": cost.moves}


def _is_ours(node: Mapping[str, Any]) -> bool:
    return str(node.get("_target_", "")).startswith("callbacks.")


def _stop(number: int, frame: FrameType | None) -> NoReturn:
    del frame
    raise InterruptedRunError(f"stopped by {signal.Signals(number).name}", number)


def _close_wandb() -> None:
    if "wandb" in sys.modules:  # else nothing was opened, and the import is slow
        sys.modules["wandb"].finish()
