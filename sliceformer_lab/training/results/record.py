"""Records a scored run: predictions, pictures, references and results, in its folder and on its dashboard."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from pytorch_lightning.loggers import Logger

from sliceformer_lab.config.checked import RunPlan
from sliceformer_lab.data.splits import Stage
from sliceformer_lab.runs.folder import pictures_in, read_metrics, read_summary
from sliceformer_lab.training.interfaces import DataModule, TaskModule
from sliceformer_lab.training.results.loggers import publish
from sliceformer_lab.training.results.observers import Observer
from sliceformer_lab.training.results.predicted import PredictedSplits, ScoredSplit
from sliceformer_lab.training.results.prediction_table import names_of, record_predictions, save_preprocessing
from sliceformer_lab.training.results.references import below_reference, references
from sliceformer_lab.training.results.scoring import Outputs, results
from sliceformer_lab.training.results.summary import Summary, print_summary


def record(
    plan: RunPlan,
    data: DataModule,
    folder: Path,
    outputs: Outputs,
    summary: Summary,
    loggers: Sequence[Logger],
) -> None:
    """Writes what a run predicted and how well into its folder and its summary, and prints the summary."""
    task, predictions = outputs.task, outputs.predictions
    if outputs.checkpoint is not None:
        names = names_of(data, task.thresholds(predictions))
        record_predictions(folder, task, data, names, predictions)
        save_preprocessing(folder, data, names)
        if plan.pictures:
            draw_pictures(folder, task, data, predictions)
    summary.update(steps={"planned": task.num_steps, "trained": outputs.steps})
    facts = results(plan, folder, data, outputs)
    reached = summary.content.get("pretrain", {}).get("metrics", {})
    facts["metrics"] |= {f"pretrain/{name}": value for name, value in reached.items()}
    facts["warnings"] = [*summary.content.get("warnings", []), *facts["warnings"]]  # those of its start first
    if plan.reference == "auto" and outputs.checkpoint is not None and plan.score_test:
        facts["references"] = references(plan, data, task, predictions, summary.seconds())
        facts["warnings"] += below_reference(task, outputs.metrics, facts["references"])
    summary.update(status="ok", **facts)
    pictures = pictures_in(folder)
    publish(loggers, folder, pictures, summary.dashboard_values())
    print_summary(read_summary(folder), folder, pictures)


def draw_pictures(folder: Path, task: TaskModule, data: DataModule, predictions: PredictedSplits) -> None:
    """Draws the curves of a run and the pictures of its task into the run folder.

    Results are those of the test split, or of the validation split where nothing is tested. A picture that cannot be
    drawn is a warning: it is no reason for a finished run to fail. Raises Interrupted at a signal.
    """
    from sliceformer_lab.measures.plots import plot_curves  # slow to import

    draw: dict[str, Callable[[Path], None]] = {"curves.png": lambda path: plot_curves(read_metrics(folder), path)}
    stages: tuple[Stage, ...] = ("test", "val")
    stage = next((stage for stage in stages if stage in predictions), None)
    if stage is not None and len(predictions[stage]["ids"]):
        ids, targets, outputs = (predictions[stage][name].numpy() for name in ("ids", "targets", "logits"))
        draw |= task.pictures(ScoredSplit(data, stage, ids, targets, outputs))
    for name, drawn in draw.items():
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Glyph")  # a text or path may have letters that no font has
            Observer(name).run(partial(drawn, folder / name))
