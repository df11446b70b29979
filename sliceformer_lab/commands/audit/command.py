"""The command `audit`. Imports nothing heavy."""

from __future__ import annotations

from sliceformer_lab.commands.compare.command_words import REFUSED_KEYS, comparison_command

COMMAND = comparison_command(
    "audit",
    "Compare one attention with controls: tuned alike, at equal parameters and equal time, with a verdict.",
    examples={
        "attention=csp task=digits": "against all compulsory rows, 10 seeds",
        "attention=csp against=random_permutation task=digits seeds=6 axes=params": "one comparison, equal parameters",
        "attention=csp against=identity,mha task=cifar10 trials=12": "12 random trials for each row",
        "attention=csp task=text_csv data.file=T.csv splits=5 data.test_fraction=.2": "five folds",
    },
    files={
        "report/audit.md, results.json": "the verdict in one sentence, tables of all rows, and every number",
        "report/*.png": "paired differences with intervals, and validation score over learning rate",
        "audit.json": "what was declared before the first run",
        "runs/*": "the run folders",
    },
    refused=REFUSED_KEYS | {"budget": "the audit sets it; choose by axes=params,time"},
)
