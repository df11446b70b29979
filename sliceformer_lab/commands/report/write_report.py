"""Writes a report: collects the runs, groups them into rows, computes each row, writes every format."""

from __future__ import annotations

from pathlib import Path

from sliceformer_lab.cli.console import table_console
from sliceformer_lab.commands.report.figures import figures, write_figures
from sliceformer_lab.commands.report.lines import lines
from sliceformer_lab.commands.report.page import page
from sliceformer_lab.commands.report.report_options import ReportOptions
from sliceformer_lab.commands.report.tables import frame, latex, markdown, show
from sliceformer_lab.runs.collect import collect
from sliceformer_lab.runs.files import write_text
from sliceformer_lab.runs.groups import tables

TABLE_CHARACTERS = 200  # characters of printed tables in files and pipes


def run(options: ReportOptions, folder: Path) -> None:
    """Write report.html, .md, .csv, .tex and figures into `folder`, and print the tables.

    Raises LabError.
    """
    found = collect(Path(options.folder).expanduser().resolve())
    sections = [(table, lines(table, options)) for table in tables(found, options.factors, options.metric)]
    plots = figures(sections)
    folder.mkdir(parents=True, exist_ok=True)
    pictures = write_figures(plots, folder) if options.figures else []
    texts = {
        "report.html": page(found, sections, plots, [path.relative_to(folder) for path in pictures]),
        "report.md": markdown(found, sections),
        "report.csv": frame(sections).to_csv(index=False),
        "report.tex": latex(sections),
    }
    for name, text in texts.items():
        write_text(folder / name, text)
    console = table_console(TABLE_CHARACTERS)
    show(console, found, sections)
    for name in [*texts, *(["figures"] if pictures else [])]:
        console.print(str(folder / name), markup=False, soft_wrap=True)
