"""The command `tune`. Imports nothing heavy."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from omegaconf import DictConfig

from sliceformer_lab.cli.command import Command
from sliceformer_lab.cli.jobs import command_options, launcher_node
from sliceformer_lab.commands.tune.tune_options import TuneOptions
from sliceformer_lab.commands.tune.tune_words import sorted_words
from sliceformer_lab.config.schema import ConfigError

FILES = {
    "report/report.md, report.json": "the tuned results with intervals and paired tests, and every trial",
    "report/*.png": "validation score over learning rate, and the results on the test set",
    "best.json": "the best values of each attention; optim=tuned:FOLDER/ATTENTION uses them",
    "trials/*, final/*": "the run folders",
    "journal.log": "the trials as optuna records them",
}


def job(cfg: DictConfig, folder: Path) -> None:
    """Validate the options, run or continue the search, train the final runs, and write the report. Raises LabError."""
    del folder  # it is the option of this name
    options = command_options(cfg, TuneOptions, COMMAND.config_name, except_node="launcher")
    if find_spec("optuna") is None:
        raise ConfigError("tune needs optuna, which is not installed; pip install 'sliceformer-lab[tune]'")
    from sliceformer_lab.commands.tune.tuning import run

    run(options, launcher_node(cfg).build())


COMMAND = Command(
    word="tune",
    summary="Tune each attention with the same search and number of trials, then compare them on new seeds.",
    arguments="[KEY=VALUE ...]",
    examples={
        "task=digits attention=mha,csp,identity": "20 learning rates each, then 6 final runs each",
        "task=digits attention=mha,csp search=lr_wd trials=40 budget=params:mha": "and weight decay, at equal size",
        "task=digits attention=mha,csp sampler=tpe round=4": "optuna's TPE, four trials of each attention at once",
        "task=digits attention=mha,csp untuned=true": "the recipe's own values on the test set, too",
    },
    sections=lambda: {"Written to FOLDER": FILES},
    job=job,
    own_words=sorted_words,
)
