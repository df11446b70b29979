"""Runs a suite: measures each comparison in its own process, then writes files and prints tables."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from sliceformer_lab.commands.benchmark.benchmark_options import SUITES, BenchmarkOptions
from sliceformer_lab.commands.benchmark.comparisons import SpeedComparison, comparisons
from sliceformer_lab.commands.benchmark.contest import blank_rows, is_want_of_memory, run_contest
from sliceformer_lab.commands.benchmark.machine import describe_machine, machine
from sliceformer_lab.commands.benchmark.process import ProcessEndedError, in_child
from sliceformer_lab.commands.benchmark.rows import SpeedRow, set_ratios
from sliceformer_lab.commands.benchmark.speed_tables import print_speed_tables
from sliceformer_lab.errors import LabError
from sliceformer_lab.runs.files import write_json
from sliceformer_lab.runs.plain_text import PlainConsole
from sliceformer_lab.training.results.observers import Observer
from sliceformer_lab.training.results.wandb_runs import send_results

RESULTS = "results.json"

log = logging.getLogger(__name__)


def run_benchmark(options: BenchmarkOptions, folder: Path) -> list[SpeedRow]:
    """Measure a suite and write results.csv and results.json into `folder`. Raises LabError."""
    if options.device == "cuda" and not torch.cuda.is_available():
        raise LabError("device=cuda: torch finds no GPU on this machine; use device=cpu")
    all_comparisons = comparisons(options)
    facts = machine(options)
    rows: list[SpeedRow] = []
    for number, comparison in enumerate(all_comparisons, 1):
        log.info(f"{number}/{len(all_comparisons)}  {_format_title(comparison)}")
        rows += _measure_comparison(comparison, options)
        set_ratios(rows)
        _write_results(folder, options, facts, rows)
    print_speed_tables(rows)
    for line in (describe_machine(facts), str(folder)):
        PlainConsole().print(line)
    return rows


def send_results_of(folder: Path, logger: Mapping[str, Any]) -> None:
    """Sends the rows, times and ratios of the benchmark in `folder` to W&B; a failure is a warning."""
    found = json.loads((folder / RESULTS).read_text(encoding="utf-8"))
    options, facts = found["options"], found["machine"]
    rows = [{name: value for name, value in row.items() if name != "rounds"} for row in found["rows"]]
    send = partial(
        send_results,
        folder,
        f"benchmark of {options['suite']} ({options['device']})",
        logger,
        notes=f"Measures {SUITES[options['suite']]}. {describe_machine(facts)}",
        job_type="bench",
        tags=[options["suite"], options["device"]],
        config={**options, "machine": facts},
        tables={"benchmark/rows": rows},
        pictures={},
        numbers={
            f"benchmark/{row['workload']}/{row['name']}/{row['tokens']}/{row['mode']}/{key}": row[key]
            for row in rows
            for key in ("seconds", "ratio")
        },
    )
    Observer("sending the benchmark to W&B").run(send)


def _measure_comparison(comparison: SpeedComparison, options: BenchmarkOptions) -> list[SpeedRow]:
    """The rows of a comparison; if its process died, or memory was full of all variants together, rows that say so."""
    try:
        rows: list[SpeedRow] = in_child(run_contest, comparison, options, limited=options.device == "cpu")
    except Exception as error:
        if not (isinstance(error, ProcessEndedError) or is_want_of_memory(error)):
            raise
        blank = [row for v in comparison.variants for row in blank_rows(comparison, options, v).values()]
        is_full = not isinstance(error, ProcessEndedError) or error.killed
        for row in blank:
            row.status, row.note = ("oom" if is_full else "failed"), str(error)
        return blank
    return rows


def _write_results(folder: Path, options: BenchmarkOptions, facts: dict[str, object], rows: list[SpeedRow]) -> None:
    """Write results.csv and results.json after each comparison, so that a stopped run keeps its rows."""
    folder.mkdir(parents=True, exist_ok=True)
    records = [asdict(row) for row in rows]
    pd.DataFrame(records).drop(columns="rounds").to_csv(folder / "results.csv", index=False)
    write_json(folder / RESULTS, {"options": asdict(options), "machine": facts, "rows": records})


def _format_title(comparison: SpeedComparison) -> str:
    work = comparison.workload
    names = ", ".join(variant.name for variant in comparison.variants)
    return f"{work.name}, {work.batch} x {work.tokens} x {work.channels}: {names}"
