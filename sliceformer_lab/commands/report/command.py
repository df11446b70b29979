"""The command `report`. Imports nothing heavy."""

from __future__ import annotations

from pathlib import Path

from omegaconf import DictConfig

from sliceformer_lab.cli.command import Command
from sliceformer_lab.cli.jobs import command_options
from sliceformer_lab.commands.report.report_options import ReportOptions

FILES = {
    "report.html": "everything in one file for a browser, with figures and the differences of any two runs",
    "report.md, report.csv, report.tex": "a row for each attention and its options, with notes",
    "figures/*.png, *.pdf": "with figures=true, each figure of report.html, for papers",
}


def job(cfg: DictConfig, folder: Path) -> None:
    """Validate the options, read the runs and write the report into `folder`. Raises LabError."""
    options = command_options(cfg, ReportOptions, COMMAND.config_name)
    from sliceformer_lab.commands.report.write_report import write_report

    write_report(options, folder)


COMMAND = Command(
    word="report",
    summary="Compare the runs below a folder.",
    arguments="[FOLDER] [KEY=VALUE ...]",
    examples={
        "outputs": "every run below outputs, sweeps included",
        "outputs/digits reference=csp": "the runs of a task, each compared with CSP on equal seeds",
        "outputs by=attention.group_size": "a column for an option, and a comparison of its values",
        "outputs metric=test/loss": "another metric",
    },
    sections=lambda: {"Written to FOLDER/report": FILES},
    job=job,
    bare_words=("folder",),
)
