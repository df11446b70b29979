"""Logs a map on Weights & Biases, if its runs are logged there."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sliceformer_lab.commands.map.map_results import Map
from sliceformer_lab.commands.map.write_map import PICTURE, command_of, run_table, score_table, sentences
from sliceformer_lab.training.results.observers import Observer
from sliceformer_lab.training.results.wandb_names import is_wandb
from sliceformer_lab.training.results.wandb_runs import results_run


def log_map(found: Map, report: Path, logger: Mapping[str, Any]) -> None:
    """Logs the sentences, tables and picture of the map in `report`; a failure is a warning."""
    if is_wandb(logger):
        Observer("sending the map to W&B").run(lambda: _log(found, report, logger))


def _log(found: Map, report: Path, logger: Mapping[str, Any]) -> None:
    from sliceformer_lab.training.results.wandb_charts import log_results

    said, options = sentences(found), found.options
    numbers: dict[str, Any] = {"verdict": " ".join(said)}
    for (attention, probe), result in found.results.items():
        values = {"n": len(result.scores), "mean": result.mean, "steps": result.steps}
        numbers |= {f"map/{attention}/{probe}/{key}": value for key, value in values.items() if value is not None}
    with results_run(
        report.parent,
        f"map of {', '.join(options.attentions)}",
        logger,
        notes=" ".join(said),
        job_type="probe",
        tags=options.probes,
        config={"attentions": list(options.attentions), "probes": list(options.probes), "command": command_of(options)},
    ) as run:
        tables = {"map/scores": score_table(found), "map/runs": run_table(found)}
        log_results(run, tables, [report / PICTURE], numbers)
