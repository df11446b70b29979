"""One benchmark, in order: plan, measure each comparison in its own process, then tables, files and figures."""

from __future__ import annotations

import logging
from dataclasses import asdict
from pathlib import Path

import pandas as pd
import torch
from rich.console import Console

from sliceformer_lab.commands.benchmark.benchmark_options import BenchmarkOptions
from sliceformer_lab.commands.benchmark.comparisons import Comparison, comparisons
from sliceformer_lab.commands.benchmark.contest import blank_rows, hold
from sliceformer_lab.commands.benchmark.goals import Verdict, goals_for, verdicts
from sliceformer_lab.commands.benchmark.machine import in_words, machine
from sliceformer_lab.commands.benchmark.paper_speeds import add_published
from sliceformer_lab.commands.benchmark.process import ProcessEndedError, in_child
from sliceformer_lab.commands.benchmark.rows import Row, as_record, matches, set_ratios
from sliceformer_lab.commands.benchmark.speed_figures import draw
from sliceformer_lab.commands.benchmark.speed_tables import print_tables
from sliceformer_lab.errors import LabError
from sliceformer_lab.runs.files import write_json
from sliceformer_lab.training.signals import signals_as_errors

WIDTH = 150  # of tables that go into a file or a pipe

log = logging.getLogger(__name__)


def run(options: BenchmarkOptions, folder: Path) -> list[Row]:
    """Measure a suite; results.csv, results.json and figures land in `folder`. Raises LabError."""
    if options.device == "cuda" and not torch.cuda.is_available():
        raise LabError("device=cuda: torch sees no GPU here; leave it out, or set device=cpu")
    with signals_as_errors():
        planned = comparisons(options)
        if not planned:
            raise LabError(f"sizes={list(options.sizes or ())}: suite={options.suite} has no comparison of these sizes")
        facts = machine(options)
        rows: list[Row] = []
        for number, comparison in enumerate(planned, 1):
            log.info(f"{number}/{len(planned)}  {_title(comparison)}")
            rows += _measured(comparison, options)
            _finish(rows)
            _write(folder, options, facts, rows)
        console = Console(highlight=False)
        if not console.is_terminal:
            console.width = WIDTH
        print_tables(console, options.suite, rows, judged(options, rows))
        console.print(in_words(facts), markup=False)
        for path in (folder, *draw(rows, folder, in_words(facts))):
            console.print(str(path), markup=False, soft_wrap=True)
    return rows


def _measured(comparison: Comparison, options: BenchmarkOptions) -> list[Row]:
    """The rows of a comparison; of one whose process died, rows that say so."""
    try:
        rows: list[Row] = in_child(hold, comparison, options, limited=options.device == "cpu")
    except ProcessEndedError as ended:
        blank = [row for v in comparison.variants for row in blank_rows(comparison, options, v).values()]
        for row in blank:
            row.status, row.note = ("oom" if ended.killed else "failed"), str(ended)
        return blank
    return rows


def _finish(rows: list[Row]) -> None:
    """What can be said only with other rows at hand."""
    set_ratios(rows)
    add_published(rows)


def _write(folder: Path, options: BenchmarkOptions, facts: dict[str, object], rows: list[Row]) -> None:
    """results.csv and results.json, after each comparison: a run that is stopped keeps what it has."""
    folder.mkdir(parents=True, exist_ok=True)
    pd.DataFrame([as_record(row) for row in rows]).to_csv(folder / "results.csv", index=False)
    content = {
        "options": asdict(options),
        "machine": facts,
        "rows": [asdict(row) for row in rows],
        "matches": [asdict(match) for match in matches(rows)],
        "goals": [asdict(verdict) for verdict in judged(options, rows)],
    }
    write_json(folder / "results.json", content)


def judged(options: BenchmarkOptions, rows: list[Row]) -> list[Verdict]:
    """The goals beside what was measured, where the suite measures them."""
    return verdicts(goals_for(options.device), rows) if options.suite == "goals" else []


def _title(comparison: Comparison) -> str:
    work = comparison.workload
    names = ", ".join(variant.name for variant in comparison.variants)
    return f"{work.name}, {work.batch} x {work.tokens} x {work.channels}: {names}"
