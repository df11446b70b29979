"""Logs the result of a comparison on Weights & Biases, if its runs are logged there."""

from __future__ import annotations

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
    from sliceformer_lab.training.results.wandb_charts import log_results

    sentence, options = verdict_sentence(found), found.options
    tables = {"verdicts": verdict_table(found)}
    tables |= {f"rows_at_{AXIS_NAMES[result.axis]}": row_table(found, result) for result in found.results}
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
        log_results(
            run,
            {f"comparison/{name.replace(' ', '_')}": rows for name, rows in tables.items()},
            [report / name for name in (PICTURE, RATES) if (report / name).is_file()],
            {"verdict": sentence, **numbers_of(found)},
        )


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
