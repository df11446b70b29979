"""One run, in order: build, check, fit, score, record."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytorch_lightning as pl

from sliceformer_lab.attention.reach import reach_of_shifts
from sliceformer_lab.errors import DivergedError, InterruptedRunError, PrunedError, machine_error
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
from sliceformer_lab.training.choices import choose_options
from sliceformer_lab.training.fitting import build_loggers, build_trainer, fit, run_context
from sliceformer_lab.training.interfaces import DataModule, TaskModule
from sliceformer_lab.training.loggers import close_wandb, publish, sync_command
from sliceformer_lab.training.other_processes import child_processes, record_first_error
from sliceformer_lab.training.pictures import draw_pictures
from sliceformer_lab.training.prediction_table import record_predictions, save_preprocessing
from sliceformer_lab.training.pretrain import pretrain
from sliceformer_lab.training.references import below_reference, references
from sliceformer_lab.training.scoring import results, score, scores_test
from sliceformer_lab.training.sharding import is_sharded
from sliceformer_lab.training.signals import catch_signals, recorded_by, signals_as_errors
from sliceformer_lab.training.summary import Summary, compare_metrics, print_summary
from sliceformer_lab.training.trainer import compile_encoder

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
    pretrained = pretrain(config, folder, loggers, summary)
    trainer = build_trainer(config, context, task, loggers, summary)
    if config["trainer"].get("compile"):  # configurations of older versions have none
        compile_encoder(task.encoder)
    with child_processes(trainer, folder):
        fit(trainer, task, data, resumable_checkpoint(folder), pretrained)
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
        if pretrained is not None:
            facts["metrics"] |= {f"pretrain/{name}": value for name, value in pretrained.metrics.items()}
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
