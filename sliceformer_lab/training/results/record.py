"""Records a scored run: predictions, pictures, references and results, in its folder and on its dashboard."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pytorch_lightning.loggers import Logger

from sliceformer_lab.config.checked import RunPlan
from sliceformer_lab.training.interfaces import DataModule
from sliceformer_lab.training.pretraining.pretrained_weights import Pretrained
from sliceformer_lab.training.results.loggers import publish
from sliceformer_lab.training.results.pictures import draw_pictures
from sliceformer_lab.training.results.prediction_table import names_of, record_predictions, save_preprocessing
from sliceformer_lab.training.results.references import below_reference, references
from sliceformer_lab.training.results.scoring import Outputs, results
from sliceformer_lab.training.results.summary import Summary, print_summary


def record(
    plan: RunPlan,
    data: DataModule,
    folder: Path,
    outputs: Outputs,
    pretrained: Pretrained | None,
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
    if pretrained is not None:
        facts["metrics"] |= {f"pretrain/{name}": value for name, value in pretrained.metrics.items()}
    if plan.reference == "auto" and outputs.checkpoint is not None and plan.score_test:
        facts["references"] = references(plan, data, task, predictions, summary.seconds())
        facts["warnings"] += below_reference(task, outputs.metrics, facts["references"])
    summary.update(status="ok", **facts)
    pictures = summary.pictures()
    publish(loggers, folder, pictures, summary.dashboard_values())
    print_summary(summary.content, folder, pictures)
