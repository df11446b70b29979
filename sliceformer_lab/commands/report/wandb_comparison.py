"""Logs a W&B run for a sweep: its figures, a table of its jobs and a table of the report's rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

from PIL import Image

from sliceformer_lab.commands.report.figures.figure_files import png_of_figure
from sliceformer_lab.commands.report.figures.plot_rows import plot_tables
from sliceformer_lab.commands.report.figures.scores import score_figures
from sliceformer_lab.commands.report.lines import lines
from sliceformer_lab.commands.report.report_options import ReportOptions
from sliceformer_lab.commands.report.table_cells import Section
from sliceformer_lab.commands.report.tables import frame
from sliceformer_lab.runs.collect import Collection, collect
from sliceformer_lab.runs.groups import tables
from sliceformer_lab.runs.job_table import job_records
from sliceformer_lab.training.results.wandb_charts import JOBS, ROWS, results_table
from sliceformer_lab.training.results.wandb_names import sentence_of_sweep, varied_options
from sliceformer_lab.training.results.wandb_runs import results_run, sync_command

Record = dict[str, Any]


def log_comparison(sweep: Path, logger: Record) -> str:
    """Log the comparison of a sweep where its runs were logged, with the options of their W&B logger.

    Returns a message for the user. Raises LabError if the sweep cannot be read.
    """
    options = ReportOptions(folder=str(sweep))
    found = collect(sweep)
    sections = [(table, lines(table, options)) for table in tables(found, options.factors, options.metric)]
    _send(sweep, logger, found, sections)
    command = sync_command(sweep)
    return f"upload the comparison of the sweep to W&B with: {command}" if command else "the comparison is on W&B"


def _send(sweep: Path, logger: Mapping[str, Any], found: Collection, sections: Sequence[Section]) -> None:
    import wandb

    tasks, attentions = (sorted({getattr(run, name) for run in found.runs}) for name in ("task", "attention"))
    varied = varied_options(sweep)
    with results_run(
        sweep,
        f"comparison of {', '.join(attentions)} ({', '.join(tasks)})",
        logger,
        notes=f"{sentence_of_sweep(varied)}, on {', '.join(tasks)}." if varied else "The runs of a sweep.",
        job_type="comparison",
        tags=tasks,
        config={"sweep": sweep.name, "tasks": tasks, "attentions": attentions},
    ) as run:
        jobs = job_records(found, [table for table, _ in sections])
        pictures = {
            f"pictures/{figure.name}": wandb.Image(Image.open(BytesIO(png_of_figure(figure))), caption=figure.caption)
            for plotted in plot_tables(sections)
            for figure in score_figures(plotted)
        }
        run.log({**pictures, JOBS: results_table(jobs), ROWS: results_table(_row_records(sections))})
        statuses = [record["status"] for record in jobs]
        run.summary.update({"jobs": len(jobs), **{f"jobs_{status}": statuses.count(status) for status in statuses}})
        run.summary.update(row_numbers(sections))


def row_numbers(sections: Sequence[Section]) -> Record:
    """The numbers of each row for a summary, such as comparison/csp/mean; unknown ones, as with few seeds, are absent.

    With several tables their number goes first: comparison/2/csp/mean.
    """
    numbers: Record = {}
    for number, (_, rows) in enumerate(sections, start=1):
        for line in rows:
            row, ends, test = f"{number}/" * (len(sections) > 1) + line.row.label, line.interval, line.test
            values = {"n": len(line.values), "mean": line.mean, "p_holm": test.p if test else None}
            values |= {"ci_low": ends.low, "ci_high": ends.high} if ends else {}
            numbers |= {f"comparison/{row}/{key}": value for key, value in values.items() if value is not None}
    return numbers


def _row_records(sections: Iterable[Section]) -> list[Record]:
    """The report's rows, as in its CSV file."""
    lines_of_all = frame(sections)
    names = [str(name) for name in lines_of_all.columns]
    return [dict(zip(names, values, strict=True)) for values in lines_of_all.astype(object).to_numpy()]
