"""One run, in order: build, fit, score, record."""

from __future__ import annotations

import logging
import warnings
from pathlib import Path

import pytorch_lightning as pl

from sliceformer_lab.attention.csp import reach_of_shifts
from sliceformer_lab.attention.own_operators import RULES_OF_SCORES, note_broken_rules
from sliceformer_lab.config.checked import RunPlan
from sliceformer_lab.config.plain_checks import WEIGHTS, own_paths
from sliceformer_lab.errors import DivergedError, Interrupted, LabError, RunFolderError, machine_error
from sliceformer_lab.runs.files import spare_space, write_json
from sliceformer_lab.runs.folder import (
    CONFIG,
    is_finished,
    load_weights,
    lock_folder,
    read_summary,
    resumable_checkpoint,
    scored_checkpoint,
    write_config,
)
from sliceformer_lab.runs.processes import is_first_process, process_number
from sliceformer_lab.runs.sources import sources_of
from sliceformer_lab.training.build import build_task
from sliceformer_lab.training.choices import with_choices
from sliceformer_lab.training.fitting import build_loggers, build_trainer, fit, run_context
from sliceformer_lab.training.interfaces import DataModule, TaskModule
from sliceformer_lab.training.pretraining.pretrain import pretrain
from sliceformer_lab.training.processes.other_processes import child_processes, record_first_error
from sliceformer_lab.training.processes.signals import catch_signals, recorded_by, signals_as_errors, stop_behind
from sliceformer_lab.training.results.prediction_table import names_of, read_preprocessing, save_preprocessing
from sliceformer_lab.training.results.record import record
from sliceformer_lab.training.results.scoring import count_evaluation, score, score_selected
from sliceformer_lab.training.results.summary import Summary, compare_metrics
from sliceformer_lab.training.results.wandb_runs import close_wandb, sync_command
from sliceformer_lab.training.saved.same_data import (
    check_same_data,
    check_tuned_on,
    check_unchanged,
    warn_of_changes,
    warn_of_other_code,
)
from sliceformer_lab.training.step_estimate import check_step_memory
from sliceformer_lab.training.trainer import compile_encoder

log = logging.getLogger(__name__)


def train(plan: RunPlan, data: DataModule, folder: Path, summary: Summary | None) -> None:
    """Fits the model, scores its selected epoch on validation and test data, and records both in the first process."""
    pl.seed_everything(plan.seed, verbose=False)
    task = build_task(plan, data.spec)
    _check_data(plan, data, folder, summary)
    _check_task(plan, task, data, summary)
    context = run_context(plan, folder, task)
    loggers = build_loggers(plan, context)
    pretrained = pretrain(plan, data, folder, loggers, summary)
    trainer = build_trainer(plan, context, task, loggers, summary)
    if plan.trainer.compile:
        compile_encoder(task.encoder)
    with child_processes(trainer, folder):
        fit(trainer, task, data, resumable_checkpoint(folder), pretrained)
        outputs = score_selected(plan, trainer, task, data, folder)
    if summary is not None:
        record(plan, data, folder, outputs, summary, loggers)


def _check_data(plan: RunPlan, data: DataModule, folder: Path, summary: Summary | None) -> None:
    """Refuses data that differ from those of the run's first start; the first process records them, with remarks."""
    changed = check_same_data(plan, folder, data)
    carried = check_tuned_on(plan, folder, data)
    if summary is None:
        return
    summary.record_data(data.digests(), _list_sources(plan, folder, summary), changed)
    if remarks := [*carried, *data.remarks()]:
        summary.update(data_remarks=remarks)
        for remark in remarks:
            log.warning(f"WARNING: {remark}")


def _list_sources(plan: RunPlan, folder: Path, summary: Summary) -> dict[str, str]:
    """The files that a run reads; of the weights that it began with, those that it began with."""
    before = summary.content["sources"] if resumable_checkpoint(folder) else {}
    paths = (path for place, path in own_paths(plan.plain).items() if place in WEIGHTS)
    weights = {str(Path(path).expanduser().resolve()) for path in paths}
    return sources_of(plan.plain) | {path: digest for path, digest in before.items() if path in weights}


def _check_task(plan: RunPlan, task: TaskModule, data: DataModule, summary: Summary | None) -> None:
    """Says how far shifts reach, what an own operator breaks and what a step needs.

    Raises MachineError for a step that needs too much memory.
    """
    if reach := reach_of_shifts(task.encoder.attentions):
        log.info(reach)
    if summary is None:
        return
    check_step_memory(task, data, plan.trainer.accelerator)
    if note := note_broken_rules(plan.names.attention, plan.plain["attention"], RULES_OF_SCORES):
        summary.update(warnings=[note])
        log.warning(f"WARNING: {note}")


def run(plan: RunPlan, data: DataModule, folder: Path) -> None:
    """Trains and scores the model of a plan, or scores it again (mode=eval), in its run folder.

    Raises LabError for what the user can fix; the summary records it.
    """
    _silence_libraries()
    if not is_first_process():
        _run_as_child(plan, data, folder)
        return
    with signals_as_errors(), lock_folder(folder):
        if plan.mode == "eval":
            evaluate(plan, data, folder)
        elif is_finished(folder):
            log.info(f"{folder} holds a finished run, so nothing is trained; mode=eval scores it again")
        else:
            _train_and_record(plan, data, folder)


def _silence_libraries() -> None:
    """Hides Lightning's tips and progress notes; our own log lines replace them. Its warnings stay."""
    for name in ("pytorch_lightning", "lightning_fabric"):
        logging.getLogger(name).setLevel(logging.WARNING)
    hidden = (
        *("does not have many workers", "smaller than the logging interval", "LeafSpec", "ranks is zero"),
        *("This DataLoader will create", "The `srun` command is available"),
        *("loading a checkpoint outside the 'fit' stage", "WeightAveraging doesn't support sharding"),
        "`torch.jit.script` is deprecated",  # on the import of torch-geometric
        "resuming from a checkpoint that ended before the epoch ended",  # our loaders go on within a pass
    )
    for message in hidden:
        warnings.filterwarnings("ignore", f".*{message}")
    logging.getLogger("pytorch_lightning.profilers.profiler").setLevel(logging.INFO)  # the table of debug=profile


def _run_as_child(plan: RunPlan, data: DataModule, folder: Path) -> None:
    """Runs one of the other processes: the same computation, but it writes nothing but the error that ends it."""
    try:
        evaluate(plan, data, folder) if plan.mode == "eval" else train(plan, data, folder, None)
    except (DivergedError, Interrupted) as error:
        raise SystemExit(0) from error  # all processes raise these together, and the first one reports them
    except BaseException as error:
        record_first_error(folder, process_number(), error)
        raise SystemExit(1) from error


def _train_and_record(plan: RunPlan, data: DataModule, folder: Path) -> None:
    summary = Summary(plan, folder)
    with spare_space(folder) as free_space:

        def record_end(error: BaseException) -> None:
            free_space()
            summary.fail(error)

        try:
            write_config(folder, plan.plain)
            summary.update()
            log.info(f"{summary.content['name']}: seed {plan.seed}, folder {folder}")
            plan = _with_choices(plan, data, folder, summary)
            with recorded_by(record_end):
                train(plan, data, folder, summary)
        except BaseException as raised:
            catch_signals(later=True)  # a second signal must not prevent the record
            error = stop_behind(raised)
            error = machine_error(error) or error
            if not isinstance(error, LabError | Interrupted) and not (folder / CONFIG).is_file():
                error = RunFolderError(f"{folder} was deleted while the run wrote into it; start the run again")
            if folder.is_dir():
                record_end(error)
            if error is raised:
                raise
            raise error from raised
        finally:
            close_wandb(folder, summary.content["status"], summary.error)
            if command := sync_command(folder):
                log.info(f"upload to W&B with: {command}")


def _with_choices(plan: RunPlan, data: DataModule, folder: Path, summary: Summary) -> RunPlan:
    """The plan with the options that follow from the data; prints and records them."""
    chosen, choices = with_choices(plan, data)
    if not choices:
        return plan
    for choice in choices:
        log.info(f"chose {choice}")
    summary.choose(chosen, choices)
    write_config(folder, chosen.plain)
    return chosen


def evaluate(plan: RunPlan, data: DataModule, folder: Path) -> None:
    """Scores the checkpoint of a finished run again and prints both results side by side.

    Changes no file that training wrote. The data may differ: classes and targets are matched by name. Raises DataError
    for a class or target that the run was not trained on, and for other data if the run has not saved these names.
    """
    trained = read_preprocessing(folder)
    if trained is None:
        check_unchanged(folder, data)
    task = build_task(plan, trained[0] if trained else data.spec)
    scored = scored_checkpoint(plan.selection, folder)
    warn_of_other_code(folder)
    load_weights(task, scored)
    trainer = build_trainer(plan, run_context(plan, folder, task), task, [])
    with child_processes(trainer, folder):
        metrics, predictions = score(trainer, task, data, scored, plan, trained[1].thresholds if trained else ())
        count_evaluation(plan, data, folder)
    if is_first_process():
        if trained is None:
            save_preprocessing(folder, data, names_of(data, task.thresholds(predictions)))
        sizes = {name: size for name, size in data.sizes().items() if name != "num_test" or plan.score_test}
        facts = {**sizes, "digests": data.digests(), "changed_data": warn_of_changes(folder, data)}
        facts["sources"] = sources_of(plan.plain)
        write_json(folder / "eval.json", {"checkpoint": scored.name, "metrics": metrics, **facts})
        compare_metrics(read_summary(folder).metrics, metrics)
        counts = [f"{size:,} {name.removeprefix('num_')}" for name, size in sizes.items()]
        log.info(f"examples: {', '.join(counts)}")
