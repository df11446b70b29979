"""Logs a benchmark on Weights & Biases."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sliceformer_lab.commands.benchmark.benchmark_options import SUITES
from sliceformer_lab.commands.benchmark.machine import describe
from sliceformer_lab.commands.benchmark.run_suite import RESULTS
from sliceformer_lab.training.results.observers import Observer
from sliceformer_lab.training.results.wandb_runs import results_run


def log_benchmark(folder: Path, logger: Mapping[str, Any]) -> None:
    """Logs the rows, times and ratios of the benchmark in `folder`; a failure is a warning."""
    Observer("sending the benchmark to W&B").run(lambda: _log(folder, logger))


def _log(folder: Path, logger: Mapping[str, Any]) -> None:
    from sliceformer_lab.training.results.wandb_charts import log_results

    found = json.loads((folder / RESULTS).read_text(encoding="utf-8"))
    options, facts = found["options"], found["machine"]
    shown = [{name: value for name, value in row.items() if name != "rounds"} for row in found["rows"]]
    numbers = {
        f"benchmark/{row['workload']}/{row['name']}/{row['tokens']}/{row['mode']}/{key}": row[key]
        for row in shown
        for key in ("seconds", "ratio")
        if row[key] is not None
    }
    with results_run(
        folder,
        f"benchmark of {options['suite']} ({options['device']})",
        logger,
        notes=f"Measures {SUITES[options['suite']]}. {describe(facts)}",
        job_type="bench",
        tags=[options["suite"], options["device"]],
        config={**options, "machine": facts},
    ) as run:
        tables = {"benchmark/rows": [list(shown[0]), *(list(row.values()) for row in shown)]}
        log_results(run, tables, [], numbers)
