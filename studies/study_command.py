"""The command line of a study that needs no runs: options from a dataclass, its table and figures into a folder."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Protocol

from rich.console import Console

from sliceformer_lab.commands.inspect.base import Findings
from sliceformer_lab.commands.inspect.run_analysis import write_findings
from sliceformer_lab.runs.commit import git_commit


class Study(Protocol):
    """A study without runs."""

    def findings(self) -> Findings:
        """Compute the table, the figures and the summary."""


def run_study(name: str, kind: Callable[..., Study], text: str | None, words: Sequence[str] | None = None) -> None:
    """Run the study with the options in `words` (default: sys.argv), write its files and print their paths.

    The fields of the dataclass `kind` are the options; a tuple takes several values. --help prints `text`.
    """
    parser = argparse.ArgumentParser(
        description=text, usage=argparse.SUPPRESS, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, default=Path("outputs", "studies", name))
    for option in fields(kind):  # type: ignore[arg-type]
        if option.init:
            several = isinstance(option.default, tuple)
            example = option.default[0] if isinstance(option.default, tuple) else option.default
            parser.add_argument(
                f"--{option.name.replace('_', '-')}",
                type=type(example),
                nargs="+" if several else None,
                default=option.default,
            )
    options = vars(parser.parse_args(words))
    folder = options.pop("output")
    options = {key: tuple(value) if isinstance(value, list) else value for key, value in options.items()}
    try:
        study = kind(**options)
    except ValueError as error:
        parser.exit(2, f"{name}: {error}\n")
    findings = study.findings()
    files = write_findings(findings, name, {"study": name, "options": options, "git_commit": git_commit()}, folder)
    console = Console(highlight=False, soft_wrap=True)
    for table in findings.summary:
        console.print(table)
    for file in files:
        console.print(str(file), markup=False)
