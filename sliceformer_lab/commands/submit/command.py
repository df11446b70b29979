"""The command `submit`. Imports nothing heavy."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from omegaconf import DictConfig

from sliceformer_lab.cli.command import Command
from sliceformer_lab.cli.jobs import check_attentions, command_options, launcher_node
from sliceformer_lab.commands.submit.submit_options import SubmitOptions

log = logging.getLogger(__name__)


NAMES = {"attention": "subject", "probe": "probes"}  # of options, by their words


def own_words(words: Sequence[str]) -> list[str]:
    """The words with attention=NAME as subject=NAME, and probe=A,B as a list."""
    renamed = [(NAMES.get(key, key), sign, value) for key, sign, value in (word.partition("=") for word in words)]
    return [f"{key}=[{value.strip('[]')}]" if key == "probes" else key + sign + value for key, sign, value in renamed]


def job(cfg: DictConfig, folder: Path) -> None:
    """Validate the options, measure the attention, and write its line. Raises LabError."""
    del folder  # it is the option of this name
    options = command_options(cfg, SubmitOptions, COMMAND.config_name, except_node="launcher")
    check_attentions([options.subject])
    from sliceformer_lab.commands.submit.submission import LINE, submit

    submit(options, launcher_node(cfg).build())
    log.info(f"one line: {Path(options.folder).resolve() / LINE}; it belongs into studies/results/submissions.jsonl")


COMMAND = Command(
    word="submit",
    summary="Run contract, growth and probes of one attention, and write one line that others can verify.",
    arguments="attention=NAME [KEY=VALUE ...]",
    examples={
        "attention=csp": "all rules, three lengths, eight probes",
        "attention=csp probe=recall level=easy seeds=1 sizes=[16,32]": "small, to try it",
        "--config-dir conf attention=my_attn 'allow_targets=[my_attn.]'": "your own: conf/attention/my_attn.yaml",
    },
    job=job,
    own_words=own_words,
)
