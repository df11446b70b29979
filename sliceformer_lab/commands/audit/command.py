"""The command `audit`. Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from omegaconf import DictConfig

from sliceformer_lab.cli.command import Command
from sliceformer_lab.cli.jobs import check_attentions, command_options, launcher_node
from sliceformer_lab.cli.passed_words import with_passed_words
from sliceformer_lab.commands.audit.audit_options import AuditOptions
from sliceformer_lab.config.schema import ConfigError
from sliceformer_lab.runs.sweep import override_key

FILES = {
    "report/audit.md, results.json": "the verdict in one sentence, tables of all rows, and every number",
    "report/*.png": "paired differences with intervals, and validation score over learning rate",
    "audit.json": "what was declared before the first run",
    "runs/*": "the run folders",
}
REFUSED = {
    "study": "an audit is a sweep of its own; give its task or recipe",
    "resume": "each run is new; leave it out",
    "mode": "each run is new; leave it out",
    "score_test": "trials never score the test set, reporting runs always; leave it out",
    "seed": "an audit has tuning_seeds=[...], and reporting seeds from 100 on; give seeds=N",
    "optim.lr": "the audit chooses it for each row; give rates=[...]",
    "budget": "the audit sets it; choose by axes=params,time",
}


def sorted_words(words: Sequence[str]) -> list[str]:
    """The words as options of conf/audit.yaml: those that it does not have are put into `words`. Raises ConfigError."""
    renamed = []
    for word in words:
        is_subject = override_key(word) == "attention" and not word.startswith(("+", "~"))
        if is_subject and "," in word:
            raise ConfigError(f"{word}: one attention is audited; name the others by against=")
        renamed.append(f"subject={word.partition('=')[2]}" if is_subject else word)
    lists = {name: name for name in ("against", "axes", "rates", "tuning_seeds")}
    return with_passed_words(renamed, COMMAND.word, lists, REFUSED)


def job(cfg: DictConfig, folder: Path) -> None:
    """Validate the options, run what is left of the audit, and write its page. Raises LabError."""
    del folder  # it is the option of this name
    options = command_options(cfg, AuditOptions, COMMAND.config_name, except_node="launcher")
    check_attentions(options.attentions)
    from sliceformer_lab.commands.audit.audit_runs import run

    run(options, launcher_node(cfg).build())


COMMAND = Command(
    word="audit",
    summary="Compare one attention with controls: tuned alike, at equal parameters and equal time, with a verdict.",
    arguments="[KEY=VALUE ...]",
    examples={
        "attention=csp task=digits": "against all controls and mha, 10 seeds",
        "attention=csp against=random_permutation task=digits seeds=6 axes=params": "one comparison, equal parameters",
        "attention=csp against=identity,mha task=cifar10 trials=12": "12 random trials for each row",
    },
    sections=lambda: {"Written to FOLDER": FILES},
    job=job,
    own_words=sorted_words,
)
