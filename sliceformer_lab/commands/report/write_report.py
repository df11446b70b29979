"""Writes a report of runs in every format, and sends the comparison of a sweep to W&B."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

from PIL import Image

from sliceformer_lab.commands.report.figures import figures
from sliceformer_lab.commands.report.figures.plot_rows import plot_tables
from sliceformer_lab.commands.report.figures.scores import score_figures
from sliceformer_lab.commands.report.lines import lines
from sliceformer_lab.commands.report.page import page
from sliceformer_lab.commands.report.report_options import ReportOptions
from sliceformer_lab.commands.report.table_cells import Section
from sliceformer_lab.commands.report.tables import frame, latex, markdown, show
from sliceformer_lab.measures.drawing import png_of_chart, write_charts
from sliceformer_lab.runs.collect import Collection, collect
from sliceformer_lab.runs.files import write_text
from sliceformer_lab.runs.groups import tables
from sliceformer_lab.runs.job_table import job_records
from sliceformer_lab.runs.plain_text import PlainConsole
from sliceformer_lab.training.results.wandb_names import JOBS, ROWS, sentence_of_sweep, varied_options


def read_sections(options: ReportOptions) -> tuple[Collection, list[Section]]:
    """The runs below a folder, and their tables with the numbers of each row. Raises LabError."""
    found = collect(Path(options.folder).expanduser().resolve())
    return found, [(table, lines(table, options)) for table in tables(found, options.factors, options.metric)]


def write_report(options: ReportOptions, folder: Path) -> None:
    """Write report.html, .md, .csv, .tex and figures into `folder`, and print the tables.

    Raises LabError.
    """
    found, sections = read_sections(options)
    plots = figures(sections)
    folder.mkdir(parents=True, exist_ok=True)
    pictures = write_charts(plots, folder / "figures") if options.figures else []
    texts = {
        "report.html": page(found, sections, plots, [path.relative_to(folder) for path in pictures]),
        "report.md": markdown(found, sections),
        "report.csv": frame(sections).to_csv(index=False),
        "report.tex": latex(sections),
    }
    for name, text in texts.items():
        write_text(folder / name, text)
    show(found, sections)
    for name in [*texts, *(["figures"] if pictures else [])]:
        PlainConsole().print(str(folder / name))


def send_comparison(sweep: Path, logger: Mapping[str, Any]) -> str:
    """Send the figures, jobs and rows of a sweep to W&B, with the options of the logger of its runs.

    Returns a message for the user. Raises LabError if the sweep cannot be read.
    """
    from sliceformer_lab.training.results.wandb_runs import send_results, sync_command

    found, sections = read_sections(ReportOptions(folder=str(sweep)))
    tasks, attentions = (sorted({getattr(run, name) for run in found.runs}) for name in ("task", "attention"))
    varied = varied_options(sweep)
    jobs = job_records(found, [table for table, _ in sections])
    statuses = [record["status"] for record in jobs]
    plots = [figure for plotted in plot_tables(sections) for figure in score_figures(plotted)]
    send_results(
        sweep,
        f"comparison of {', '.join(attentions)} ({', '.join(tasks)})",
        logger,
        notes=f"{sentence_of_sweep(varied)}, on {', '.join(tasks)}." if varied else "The runs of a sweep.",
        job_type="comparison",
        tags=tasks,
        config={"sweep": sweep.name, "tasks": tasks, "attentions": attentions},
        tables={JOBS: jobs, ROWS: [dict(row) for _, row in frame(sections).astype(object).iterrows()]},
        pictures={figure.name: (Image.open(BytesIO(png_of_chart(figure))), figure.caption) for figure in plots},
        numbers={"jobs": len(jobs), **{f"jobs_{status}": statuses.count(status) for status in statuses}}
        | row_numbers(sections),
    )
    command = sync_command(sweep)
    return f"upload the comparison of the sweep to W&B with: {command}" if command else "the comparison is on W&B"


def row_numbers(sections: Sequence[Section]) -> dict[str, Any]:
    """The numbers of each row for a summary, such as comparison/csp/mean; unknown ones, as with few seeds, are None.

    With several tables their number goes first: comparison/2/csp/mean.
    """
    numbers: dict[str, Any] = {}
    for number, (_, rows) in enumerate(sections, start=1):
        for line in rows:
            row, ends, test = f"{number}/" * (len(sections) > 1) + line.row.label, line.interval, line.test
            values = {"n": len(line.values), "mean": line.mean, "p_holm": test.p if test else None}
            values |= {"ci_low": ends.low, "ci_high": ends.high} if ends else {}
            numbers |= {f"comparison/{row}/{key}": value for key, value in values.items()}
    return numbers
