"""The command `verify`. Imports nothing heavy."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from omegaconf import DictConfig

from sliceformer_lab.cli.command import Command
from sliceformer_lab.cli.jobs import check_attentions, command_options, launcher_node
from sliceformer_lab.config.schema import check_options
from sliceformer_lab.errors import LabError


@dataclass(frozen=True, kw_only=True)
class VerifyOptions:
    """The options of `conf/verify.yaml`."""

    line: str
    folder: str


def job(cfg: DictConfig, folder: Path) -> None:
    """Repeat a submission and print both. Raises LabError if they differ."""
    del folder  # it is the option of this name
    options = command_options(cfg, VerifyOptions, COMMAND.config_name, except_node="launcher")
    from sliceformer_lab.commands.submit.submission import differences, read_line, submit
    from sliceformer_lab.commands.submit.submit_options import SubmitOptions
    from sliceformer_lab.runs.printed_table import print_tables

    line = read_line(Path(options.line).expanduser())
    asked = {**line["options"], "folder": options.folder}
    repeated: SubmitOptions = check_options(SubmitOptions, asked, options.line).build()
    check_attentions([repeated.subject])
    rows = differences(line, submit(repeated, launcher_node(cfg).build()))
    cells = [[subject, one, other, "equal" if same else "DIFFERENT"] for subject, one, other, same in rows]
    print_tables({repeated.subject: [["", "line", "here", ""], *cells]}, [])
    if wrong := [subject for subject, _, _, same in rows if not same]:
        raise LabError(f"the line of {repeated.subject} is not repeated here: {', '.join(wrong)}")


COMMAND = Command(
    word="verify",
    summary="Repeat what a line of `submit` says, and compare.",
    arguments="FILE [KEY=VALUE ...]",
    examples={"outputs/submissions/csp/submission.jsonl": "the last line of the file"},
    job=job,
    bare_words=("line",),
)
