"""The command `tune`. Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from omegaconf import DictConfig

from sliceformer_lab.cli.command import Command
from sliceformer_lab.cli.jobs import command_options, launcher_node
from sliceformer_lab.commands.compare.command_words import REFUSED, WHEN, check_names, words_of_comparison
from sliceformer_lab.commands.compare.compare_options import CompareOptions

FILES = {
    "report/tune.md, results.json": "every trial, the chosen values, and the tuned results with intervals and tests",
    "report/*.png": "validation score over learning rate, and paired differences on the test set",
    "best.json": "the best values of each attention; optim=tuned:FOLDER/ATTENTION uses them",
    "runs/*": "the run folders",
}


def sorted_words(words: Sequence[str]) -> list[str]:
    """The words as options of conf/tune.yaml: those that it does not have are put into `words`. Raises ConfigError."""
    return words_of_comparison(words, COMMAND.word, REFUSED)


def job(cfg: DictConfig, folder: Path) -> None:
    """Validate the options, run what is left of the search, and write best.json and the page. Raises LabError."""
    del folder  # it is the option of this name
    options = command_options(cfg, CompareOptions, COMMAND.config_name, except_node="launcher")
    check_names(options.names)
    from sliceformer_lab.commands.compare.steps import run
    from sliceformer_lab.commands.tune.best_values import write_best

    run(COMMAND.word, options, launcher_node(cfg).build(), write_best)


COMMAND = Command(
    word="tune",
    summary="Tune each attention with the same search and number of trials, then compare them on new seeds.",
    arguments="[KEY=VALUE ...]",
    examples={
        "task=digits attention=mha,csp,identity": "10 learning rates each, then 6 reporting runs each",
        "task=digits attention=mha,csp search=lr_wd trials=20 budget=params:mha": "and weight decay, at equal size",
        "task=digits attention=mha,csp trials=0 rates=[1e-3,1e-2]": "two learning rates and the recipe's own",
        "task=digits attention=mha,csp untuned=true": "the recipe's own values on the test set, too",
    },
    sections=lambda: {"When to use which": WHEN, "Written to FOLDER": FILES},
    job=job,
    own_words=sorted_words,
)
