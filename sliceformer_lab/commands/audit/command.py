"""The command `audit`. Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from omegaconf import DictConfig

from sliceformer_lab.cli.command import Command
from sliceformer_lab.cli.jobs import command_options, launcher_node
from sliceformer_lab.commands.compare.command_words import REFUSED, WHEN, check_names, words_of_comparison
from sliceformer_lab.commands.compare.compare_options import CompareOptions

FILES = {
    "report/audit.md, results.json": "the verdict in one sentence, tables of all rows, and every number",
    "report/*.png": "paired differences with intervals, and validation score over learning rate",
    "audit.json": "what was declared before the first run",
    "runs/*": "the run folders",
}
BUDGET = {"budget": "the audit sets it; choose by axes=params,time"}


def sorted_words(words: Sequence[str]) -> list[str]:
    """The words as options of conf/audit.yaml: those that it does not have are put into `words`. Raises ConfigError."""
    return words_of_comparison(words, COMMAND.word, REFUSED | BUDGET)


def job(cfg: DictConfig, folder: Path) -> None:
    """Validate the options, run what is left of the audit, and write its page. Raises LabError."""
    del folder  # it is the option of this name
    options = command_options(cfg, CompareOptions, COMMAND.config_name, except_node="launcher")
    check_names(options.names)
    from sliceformer_lab.commands.compare.steps import run

    run(COMMAND.word, options, launcher_node(cfg).build())


COMMAND = Command(
    word="audit",
    summary="Compare one attention with controls: tuned alike, at equal parameters and equal time, with a verdict.",
    arguments="[KEY=VALUE ...]",
    examples={
        "attention=csp task=digits": "against all compulsory rows, 10 seeds",
        "attention=csp against=random_permutation task=digits seeds=6 axes=params": "one comparison, equal parameters",
        "attention=csp against=identity,mha task=cifar10 trials=12": "12 random trials for each row",
        "attention=csp task=text_csv data.file=T.csv splits=5 data.test_fraction=.2": "five folds",
    },
    sections=lambda: {"When to use which": WHEN, "Written to FOLDER": FILES},
    job=job,
    own_words=sorted_words,
)
