"""The report's command line: its help, and its one job. Imports nothing heavy."""

from __future__ import annotations

from pathlib import Path

from omegaconf import DictConfig

from sliceformer_lab.cli.help import page, root_options
from sliceformer_lab.cli.jobs import command_options
from sliceformer_lab.cli.main import Command
from sliceformer_lab.commands.report.report_options import ReportOptions

CONFIG_NAME = "report"
EXAMPLES = {
    "outputs": "every run below outputs, sweeps included",
    "outputs/digits reference=csp": "the runs of a task, each compared with CSP on equal seeds",
    "outputs by=attention.group_size": "a column for an option, and its values compared",
    "outputs metric=test/loss": "another metric",
}


def help_text() -> str:
    """Example commands, what is written, and every option with its default."""
    program = "python -m sliceformer_lab report"
    sections = {
        "Examples": {f"{program} {words}": said for words, said in EXAMPLES.items()},
        "Written to FOLDER/report": {
            "report.html": "all of it in one file for a browser, with figures and the options of any two runs compared",
            "report.md, report.csv, report.tex": "a row for each attention and its options, and what is behind it",
            "figures/*.png, *.pdf": "each figure of report.html, for papers",
            "coverage.md": "every number the papers print, the command that repeats it, and its runs here",
        },
        "Options, and what they are by default": root_options(CONFIG_NAME),
    }
    return page("Compare the runs below a folder.", f"{program} [FOLDER] [KEY=VALUE ...]", sections)


def job(cfg: DictConfig, folder: Path) -> None:
    """Check the options, read the runs and write the report into `folder`. Raises LabError."""
    options = command_options(cfg, ReportOptions, CONFIG_NAME)
    from sliceformer_lab.commands.report.write import run

    run(options, folder)


REPORT = Command(CONFIG_NAME, help_text, job, bare_word="folder")
