"""One run, in order: build, check, fit, score, record."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
from lightning_fabric.utilities.exceptions import MisconfigurationException
from pytorch_lightning.callbacks import ProgressBar
from pytorch_lightning.loggers import Logger

from sliceformer_lab.attention.reach import reach_of_shifts
from sliceformer_lab.config.checked import node_at
from sliceformer_lab.config.schema import CheckedNode, ConfigError, positional
from sliceformer_lab.errors import DivergedError, InterruptedRunError, LabError, PrunedError, machine_error
from sliceformer_lab.runs.files import spare_space, write_json
from sliceformer_lab.runs.folder import (
    is_finished,
    load_weights,
    lock_folder,
    read_summary,
    resumable_checkpoint,
    scored_checkpoint,
    write_config,
)
from sliceformer_lab.runs.processes import is_first_process, process_number
from sliceformer_lab.training.build import build_data, build_task, check_published
from sliceformer_lab.training.checkpoint_io import AtomicCheckpointIO
from sliceformer_lab.training.choices import choose_options
from sliceformer_lab.training.context import RunContext
from sliceformer_lab.training.interfaces import DataModule, TaskModule
from sliceformer_lab.training.loggers import WatchingLogger, close_wandb, publish, sync_command
from sliceformer_lab.training.metrics_file import MetricsFile
from sliceformer_lab.training.observers import warn_of
from sliceformer_lab.training.other_processes import OwnProcesses, child_processes, record_first_error
from sliceformer_lab.training.pictures import draw_pictures
from sliceformer_lab.training.prediction_table import record_predictions, save_preprocessing
from sliceformer_lab.training.references import below_reference, references
from sliceformer_lab.training.scoring import results, score, scores_test
from sliceformer_lab.training.sharding import Sharded, is_sharded
from sliceformer_lab.training.signals import catch_signals, recorded_by, signals_as_errors
from sliceformer_lab.training.summary import RecordPlace, Summary, compare_metrics, print_summary

log = logging.getLogger(__name__)

Config = Mapping[str, Any]


def run(config: Config, folder: Path) -> float | None:
    """Trains and scores the model of a resolved configuration, or scores it again (mode=eval), in its run folder.

    Returns the monitored validation metric. Raises LabError for what the user can fix; the summary records it.
    """
    _silence_lightning()
    if not is_first_process():
        _run_as_child(config, folder)
        return None
    with signals_as_errors(), lock_folder(folder):
        if config["mode"] == "eval":
            return evaluate(config, folder)
        if is_finished(folder):
            log.info(f"{folder} holds a finished run, so nothing is trained; mode=eval scores it again")
            value: float | None = read_summary(folder)["best"]["value"]
            return value
        return _train_and_record(config, folder)


def _silence_lightning() -> None:
    """Hides Lightning's tips and progress notes; our own log lines replace them. Its warnings stay."""
    for name in ("pytorch_lightning", "lightning_fabric"):
        logging.getLogger(name).setLevel(logging.WARNING)
    hidden = (
        *("does not have many workers", "smaller than the logging interval", "LeafSpec", "ranks is zero"),
        *("This DataLoader will create", "The `srun` command is available"),
        "resuming from a checkpoint that ended before the epoch ended",  # our loaders go on within a pass
    )
    for message in hidden:
        warnings.filterwarnings("ignore", f".*{message}")


def _run_as_child(config: Config, folder: Path) -> None:
    """Runs one of the other processes: the same computation, but it writes nothing but the error that ends it."""
    try:
        evaluate(config, folder) if config["mode"] == "eval" else train(config, folder, None)
    except (DivergedError, InterruptedRunError, PrunedError) as error:
        raise SystemExit(0) from error  # all processes raise these together, and the first one reports them
    except BaseException as error:
        record_first_error(folder, process_number(), error)
        raise SystemExit(1) from error


def _train_and_record(config: Config, folder: Path) -> float | None:
    summary = Summary(config, folder)
    with spare_space(folder) as free_space:

        def record(error: BaseException) -> None:
            free_space()
            summary.fail(error)

        try:
            write_config(folder, config)
            summary.update()
            log.info(f"{summary.content['name']}: seed {config['seed']}, folder {folder}")
            config = _with_choices(config, folder, summary)
            with recorded_by(record):
                return train(config, folder, summary)
        except BaseException as raised:
            catch_signals(later=True)  # a second signal must not prevent the record
            error = machine_error(raised) or raised
            record(error)
            if error is raised:
                raise
            raise error from raised
        finally:
            close_wandb(summary.content["status"])
            if command := sync_command(folder):
                log.info(f"upload to W&B with: {command}")


def _with_choices(config: Config, folder: Path, summary: Summary) -> Config:
    """The configuration with the options that follow from the data; prints and records them."""
    chosen, choices = choose_options(config)
    if not choices:
        return config
    for choice in choices:
        log.info(f"chose {choice}")
    summary.choose(chosen, choices)
    write_config(folder, chosen)
    return chosen


def train(config: Config, folder: Path, summary: Summary | None) -> float | None:
    """Fits the model, scores its selected epoch on validation and test data, and records both in the first process."""
    check_published(config["published"])
    pl.seed_everything(config["seed"], verbose=False)
    data = build_data(config)
    task = build_task(config, data.spec)
    if reach := reach_of_shifts(task.encoder.attentions):
        log.info(reach)
    context = run_context(config, folder, task)
    loggers = build_loggers(config, context) if is_first_process() else []
    trainer = build_trainer(config, context, task, loggers, summary)
    with child_processes(trainer, folder):
        fit(trainer, task, data, resumable_checkpoint(folder))
        trained = trainer.global_step
        scored = None if config["trainer"]["fast_dev_run"] else scored_checkpoint(config, folder)
        metrics = score(trainer, task, data, scored, config)
        predictions = {split: outputs.gathered() for split, outputs in task.predictions.items()}
        task = _whole(task, config, data, scored)
    if summary is not None:
        if scored is not None:
            record_predictions(folder, task, data, predictions)
            save_preprocessing(folder, data)
            if config.get("pictures", True):
                draw_pictures(folder, data, predictions)
        summary.update(steps={"planned": task.num_steps, "trained": trained})
        facts = results(config, folder, data, task, scored, metrics, predictions)
        if config.get("reference") == "auto" and scored is not None and scores_test(config):
            facts["references"] = references(config, data, task, predictions, summary.seconds())
            facts["warnings"] += below_reference(task, metrics, facts["references"])
        summary.update(status="ok", **facts)
        pictures = summary.pictures()
        publish(loggers, folder, pictures, summary.dashboard_values())
        print_summary(summary.content, folder, pictures)
    return metrics.get(f"val/{task.monitor}")


def _whole(task: TaskModule, config: Config, data: DataModule, scored: Path | None) -> TaskModule:
    """The task with all its weights, those of the scored checkpoint, in one process."""
    if not is_sharded(task):
        return task
    whole = build_task(config, data.spec)
    whole.num_steps = task.num_steps
    if scored is not None:
        load_weights(whole, scored)
    return whole


def evaluate(config: Config, folder: Path) -> float | None:
    """Scores the checkpoint of a finished run again and prints both results side by side."""
    data = build_data(config)
    task = build_task(config, data.spec)
    scored = scored_checkpoint(config, folder)
    load_weights(task, scored)
    trainer = build_trainer(config, run_context(config, folder, task), task, [])
    with child_processes(trainer, folder):
        metrics = score(trainer, task, data, scored, config)
    if is_first_process():
        save_preprocessing(folder, data)
        write_json(folder / "eval.json", {"checkpoint": scored.name, "metrics": metrics})
        compare_metrics(read_summary(folder).get("metrics", {}), metrics)
    return metrics.get(f"val/{task.monitor}")


def fit(trainer: pl.Trainer, task: TaskModule, data: DataModule, last: Path | None) -> None:
    """Trains a new model, or continues from `last`. Raises RunFolderError if that checkpoint cannot be used."""
    if last is None:
        task.initialise()
    else:
        load_weights(task, last)  # Lightning loads it too, but reports a damaged or foreign file with a traceback
    trainer.fit(task, datamodule=data, ckpt_path=last, weights_only=True)


def run_context(config: Config, folder: Path, task: TaskModule) -> RunContext:
    """The facts of a run that callbacks and loggers receive."""
    split = {"best_val": "val", "best_test": "test_curve", "last": None}[config["selection"]]
    monitor = f"{split}/{task.monitor}" if split else None
    return RunContext(folder=folder, seed=config["seed"], monitor=monitor, monitor_mode=task.monitor_mode)


def build_loggers(config: Config, context: RunContext) -> list[Logger]:
    """The CSV logger, and the one of the configuration if there is one."""
    loggers: list[Logger] = [MetricsFile(context.folder)]
    if config["logger"]:
        node = node_at(config, "logger")
        try:
            loggers.append(WatchingLogger(node.build(context, dict(config))))
        except LabError:
            raise
        except Exception as error:
            warn_of(node.target.__name__, error)
    return loggers


def build_trainer(
    config: Config, context: RunContext, task: TaskModule, loggers: list[Logger], summary: Summary | None = None
) -> pl.Trainer:
    """Lightning's trainer with the configured callbacks. Raises ConfigError for options that it refuses."""
    nodes = [node_at(config, f"callbacks.{name}") for name in config["callbacks"]]
    callbacks: list[pl.Callback] = [node.build(*([context] if _takes_context(node) else [])) for node in nodes]
    if summary is not None:
        callbacks.append(RecordPlace(summary))
    node, optim = node_at(config, "trainer"), task.optim
    options = dict(node.options)
    if options.get("strategy") == "fsdp":
        options["strategy"] = Sharded()
    try:
        trainer: pl.Trainer = node.target(
            **options,
            default_root_dir=context.folder,
            max_epochs=optim.epochs or optim.steps,  # the task stops after its steps; max_steps would break resuming
            accumulate_grad_batches=optim.accumulate,
            gradient_clip_val=optim.clip_norm,
            callbacks=callbacks,
            logger=loggers,
            plugins=[AtomicCheckpointIO(), OwnProcesses()],
            num_sanity_val_steps=0,
            enable_model_summary=False,
            enable_progress_bar=any(isinstance(callback, ProgressBar) for callback in callbacks),
            use_distributed_sampler=False,  # our loaders split the examples between processes
        )
    except (TypeError, ValueError, MisconfigurationException) as error:
        raise ConfigError(f"trainer: {error}") from error
    return trainer


def _takes_context(callback: CheckedNode) -> bool:
    """Whether a callback has a RunContext as its positional argument, as all of ours; Lightning's own have none."""
    return RunContext in positional(callback.target).values()
