"""Logs the result of a comparison on Weights & Biases, if its runs are logged there."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sliceformer_lab.commands.compare.compare_options import AXIS_NAMES
from sliceformer_lab.commands.compare.compare_page import PICTURE, RATES, command_of
from sliceformer_lab.commands.compare.compare_tables import row_table, verdict_table
from sliceformer_lab.commands.compare.results import Comparison
from sliceformer_lab.commands.compare.sentences import verdict_sentence
from sliceformer_lab.training.results.observers import Observer
from sliceformer_lab.training.results.wandb_names import is_wandb
from sliceformer_lab.training.results.wandb_runs import results_run


def log_to_wandb(found: Comparison, report: Path) -> None:
    """Logs the sentence, the tables and the figures of the page in `report`; a failure is a warning."""
    if is_wandb(found.rows[0].config["logger"]):
        Observer("sending the comparison to W&B").run(lambda: _log(found, report))


def _log(found: Comparison, report: Path) -> None:
    import wandb

    sentence, options = verdict_sentence(found), found.options
    with results_run(
        found.folder.parent,
        f"{found.word} of {options.subject} ({found.task})",
        found.rows[0].config["logger"],
        notes=sentence,
        job_type=found.word,
        tags=[found.task, options.subject],
        config={
            "task": found.task,
            "attention": options.subject,
            "against": list(options.others),
            "command": command_of(found),
        },
    ) as run:
        tables = {"verdicts": verdict_table(found)}
        tables |= {f"rows_at_{AXIS_NAMES[result.axis]}": row_table(found, result) for result in found.results}
        pictures = [report / name for name in (PICTURE, RATES) if (report / name).is_file()]
        run.log(
            {
                **{f"comparison/{name.replace(' ', '_')}": _table(rows) for name, rows in tables.items()},
                **{f"pictures/{picture.stem}": [wandb.Image(str(picture))] for picture in pictures},
            }
        )
        run.summary.update({"verdict": sentence, **numbers_of(found)})


def numbers_of(found: Comparison) -> dict[str, Any]:
    """The numbers of each row and each compared pair for a summary, such as comparison/mha/own/p_holm."""
    numbers: dict[str, Any] = {}
    for result in found.results:
        for name, scores in result.scores.items():
            numbers[f"comparison/{name}/{result.axis}/n"] = len(scores)
            numbers[f"comparison/{name}/{result.axis}/mean"] = result.mean(name)
    for outcome in found.outcomes:
        for axis, finding in outcome.findings.items():
            place = f"comparison/{outcome.against}/{axis}"
            numbers[f"{place}/ci_low"], numbers[f"{place}/ci_high"] = finding.interval.low, finding.interval.high
            numbers[f"{place}/p_holm"] = outcome.holm_p
    return {name: value for name, value in numbers.items() if value is not None}


def _table(rows: Sequence[Sequence[str]]) -> Any:
    """A W&B table of a head and rows."""
    import wandb

    head, *body = rows
    return wandb.Table(columns=list(head), data=[list(row) for row in body])
