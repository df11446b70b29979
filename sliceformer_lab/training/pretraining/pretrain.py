"""The stage before a training: the encoder learns to find hidden parts of the training data, in FOLDER/pretrain.

It is a run of its own without test data: its checkpoints and metrics are in that folder, an interrupted pretraining
goes on from its last checkpoint, and a finished one is not repeated.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from pytorch_lightning.loggers import Logger

from sliceformer_lab.config.checked import RunPlan
from sliceformer_lab.config.compose import load_option, option_names, written_option
from sliceformer_lab.config.schema import ConfigError, locate
from sliceformer_lab.errors import RunFolderError
from sliceformer_lab.runs.files import write_json
from sliceformer_lab.runs.folder import resumable_checkpoint, scored_checkpoint
from sliceformer_lab.runs.plain_text import format_score
from sliceformer_lab.runs.pretraining_folder import FOLDER, RECORD
from sliceformer_lab.training.build import build_data, build_task
from sliceformer_lab.training.fitting import build_trainer, fit, run_context
from sliceformer_lab.training.interfaces import DataModule
from sliceformer_lab.training.optim import OptimOptions
from sliceformer_lab.training.pretraining.pretrain_options import PretrainOptions
from sliceformer_lab.training.pretraining.pretrained_weights import Pretrained
from sliceformer_lab.training.processes.other_processes import num_processes
from sliceformer_lab.training.results.loggers import PrefixedLogger
from sliceformer_lab.training.results.metrics_file import MetricsFile
from sliceformer_lab.training.results.scoring import score
from sliceformer_lab.training.results.summary import Summary

PASSES_PER_TRAINING_PASS = 3  # of pretraining for each pass of the training, where `pretrain.epochs` is null

log = logging.getLogger(__name__)


def pretrain(
    plan: RunPlan, data: DataModule, folder: Path, loggers: Sequence[Logger], summary: Summary | None
) -> Pretrained | None:
    """The finished pretraining that a run starts from, done now if need be; None if the run has none, or has begun.

    Records it in the summary. Raises RunFolderError if `path` is no pretraining that fits.
    """
    if plan.pretrain is None or resumable_checkpoint(folder) is not None:
        return None
    options: PretrainOptions = plan.pretrain.build()
    if options.path is not None:
        found = Pretrained.find(Path(options.path).expanduser())
        if found is None:
            raise RunFolderError(
                f"pretrain.path={options.path}: no pretraining has finished there; give the folder of a run with "
                "pretrain=masked"
            )
        found.check_fits(plan)
        found.check_data(plan, data)
    else:
        found = Pretrained.find(folder / FOLDER) or _train_weights(plan, options, folder, loggers)
    if found is None:
        return None
    found = replace(found, keep_attention=options.keep == "all")
    scores = ", ".join(f"masked {name} {format_score(value)}" for name, value in found.metrics.items())
    log.info(f"the encoder starts from {found.folder}: {scores}")
    if summary is not None:
        shown = ("monitor", "metrics", "steps", "seconds", "seed", "options")
        summary.update(pretrain={name: found.facts.get(name) for name in shown})
    return found


def num_pretraining_steps(plan: RunPlan, steps_per_epoch: int) -> int:
    """The optimizer steps of the pretraining of a run; 0 if it has none of its own."""
    if plan.pretrain is None or plan.pretrain.option("path") is not None:
        return 0
    optim: OptimOptions = pretraining_plan(plan, plan.pretrain.build()).model.optim.build()
    return optim.num_steps(steps_per_epoch)


def check_maskable(plan: RunPlan) -> None:
    """Raises ConfigError for a pretraining that the task does not have, or that several processes would share."""
    if plan.pretrain is None:
        return
    task = plan.task.target
    if not task.maskable:
        able = ", ".join(name for name in option_names("task") if _is_maskable(name))
        raise ConfigError(f"pretrain: {task.__name__} has no inputs to mask; tasks that have: {able}")
    processes = num_processes(plan.trainer)
    if processes > 1 and plan.pretrain.option("path") is None:
        raise ConfigError(
            f"pretrain: one process pretrains, and trainer.devices asks for {processes}; pretrain with "
            "trainer.devices=1, and give that run's folder as pretrain.path"
        )


def _is_maskable(name: str) -> bool:
    try:
        return bool(locate(written_option("task", name)["task"]["_target_"]).maskable)
    except (ConfigError, KeyError, AttributeError):  # of a user's own task
        return False


def _train_weights(
    plan: RunPlan, options: PretrainOptions, folder: Path, loggers: Sequence[Logger]
) -> Pretrained | None:
    """A new pretraining, or the rest of an interrupted one; None in a dry run, which saves nothing."""
    place, started = folder / FOLDER, time.perf_counter()
    own = pretraining_plan(plan, options)
    data = build_data(own)
    module = build_task(own, data.spec).pretraining(options, own.seed)
    context = replace(run_context(own, place, module), resume=folder)
    trainer = build_trainer(
        own, context, module, [MetricsFile(place), *(PrefixedLogger(logger) for logger in loggers[1:])]
    )
    length = f"{module.optim.epochs} epochs" if module.optim.epochs else f"{module.optim.steps} steps"
    log.info(f"pretraining with masked inputs, {length}, in {place}; the training follows")
    fit(trainer, module, data, resumable_checkpoint(place))
    if own.trainer.fast_dev_run:
        return None
    checkpoint, steps = scored_checkpoint(own.selection, place), trainer.global_step
    metrics, _ = score(trainer, module, data, checkpoint, own)
    facts = {
        "metrics": metrics,
        "monitor": f"val/{module.monitor}",
        "checkpoint": checkpoint.name,
        "steps": steps,
        "seconds": round(time.perf_counter() - started, 2),  # of its last start
        "seed": own.seed,
        "options": asdict(options),
        "model": {name: own.plain[name] for name in ("encoder", "block", "attention")},
        "data": own.plain["data"],
    }
    write_json(place / RECORD, facts)
    return Pretrained.find(place)


def pretraining_plan(plan: RunPlan, options: PretrainOptions) -> RunPlan:
    """The plan of the stage: longer than the training's, without test data, with the necessary callbacks only."""
    needed = load_option("callbacks", "minimal")
    return plan.with_options(
        {
            "pretrain": {},
            "score_test": False,
            "selection": "last" if plan.selection == "last" else "best_val",
            "callbacks": {name: node for name, node in plan.plain["callbacks"].items() if name in needed},
            **{f"optim.{name}": value for name, value in _choose_lengths(plan, options).items()},
        }
    )


def _choose_lengths(plan: RunPlan, options: PretrainOptions) -> dict[str, Any]:
    """The options of the optimiser that differ from the training's."""
    optim: OptimOptions = plan.model.optim.build()
    changed: dict[str, Any] = {"lr": options.lr or optim.lr, "stop_at": None, "cycle": "fit", "horizon": None}
    changed |= {"freeze": 0, "layer_decay": 1.0}  # they spare what the pretraining has learned
    if options.epochs is not None:
        changed |= {"epochs": options.epochs, "steps": None, "max_steps": None, "val_every": None}
        times = options.epochs / optim.epochs if optim.epochs else PASSES_PER_TRAINING_PASS
    else:
        times = PASSES_PER_TRAINING_PASS
        lengths = {"epochs": optim.epochs, "steps": optim.steps, "max_steps": optim.max_steps}
        changed |= {name: times * value for name, value in lengths.items() if value is not None}
    if optim.milestones:
        changed["milestones"] = [round(times * epoch) for epoch in optim.milestones]
    return changed
