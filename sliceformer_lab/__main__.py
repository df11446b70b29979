"""`python -m sliceformer_lab`: trains, or runs the command that the first argument names."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import sliceformer_lab

if TYPE_CHECKING:
    import pandas as pd

    from sliceformer_lab.cli.command import Command
    from sliceformer_lab.training.saved.saved_run import Run

COMMANDS = (  # the folders of sliceformer_lab/commands; COMMAND in command.py of each is the command of that name
    "sweep",
    "report",
    "predict",
    "inspect",
    "benchmark",
    "check",
    "export",
    "tune",
    "map",
    "audit",
    "wandb",
    "submit",
    "verify",
    "swap",
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; `argv` without the program's name."""
    if "__all__" not in vars(sliceformer_lab):  # a folder of that name hides the package, and Python would mix both
        place = next(iter(sliceformer_lab.__path__))
        print(f"sliceformer-lab: {place} hides the installed package; start in another folder", file=sys.stderr)  # noqa: T201
        return 1
    try:  # the imports too: they take a second
        from sliceformer_lab.cli.main import run_program
        from sliceformer_lab.cli.train import train_command
        from sliceformer_lab.commands.report.after_sweep import report_sweep

        train = train_command(lambda: {word: load(word).summary for word in COMMANDS}, report_sweep)
        words = sys.argv[1:] if argv is None else argv
        return run_program(train, {word: partial(load, word) for word in COMMANDS}, words)
    except KeyboardInterrupt:
        print("sliceformer-lab: stopped by SIGINT", file=sys.stderr)  # noqa: T201
        return 130


def run(*words: str, folder: str | Path) -> Run:
    """Trains with the words of a command line in `folder`, or continues there. Raises LabError.

    For notebooks: `run("attention=csp", "optim.epochs=3", folder="outputs/mine").summary`.
    """
    from sliceformer_lab.cli.run_sweep import run_job
    from sliceformer_lab.runs.sweep import quote_path
    from sliceformer_lab.training.saved.saved_run import load_run

    run_job([*words, f"hydra.run.dir={quote_path(Path(folder).resolve())}"])
    return load_run(folder)


def sweep(*words: str, folder: str | Path) -> pd.DataFrame:
    """Runs the jobs of a sweep that `folder` lacks, and returns `load_sweep(folder)`: a row each, failed ones too.

    Raises LabError for words that plan no sweep; the sentence is on the terminal.
    """
    from sliceformer_lab.runs.job_table import load_sweep
    from sliceformer_lab.runs.sweep import quote_path, read_sweep

    place = Path(folder).resolve()
    main(["-m", *words, f"hydra.sweep.dir={quote_path(place)}"])
    read_sweep(place)
    return load_sweep(place)


def load(word: str) -> Command:
    """The command of this name, imported when it is needed."""
    command: Command = import_module(f"sliceformer_lab.commands.{word}.command").COMMAND
    return command


if __name__ == "__main__":
    sys.exit(main())
