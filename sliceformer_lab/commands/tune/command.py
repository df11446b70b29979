"""The command `tune`. Imports nothing heavy."""

from __future__ import annotations

from sliceformer_lab.commands.compare.command_words import REFUSED_KEYS, comparison_command

COMMAND = comparison_command(
    "tune",
    "Tune each attention with the same search and number of trials, then compare them on new seeds.",
    examples={
        "task=digits attention=mha,csp,identity": "10 learning rates each, then 6 reporting runs each",
        "task=digits attention=mha,csp search=lr_wd trials=20 budget=params:mha": "and weight decay, at equal size",
        "task=digits attention=mha,csp trials=0 rates=[1e-3,1e-2]": "two learning rates and the recipe's own",
        "task=digits attention=mha,csp untuned=true": "the recipe's own values on the test set, too",
    },
    files={
        "report/tune.md, results.json": "every trial, the chosen values, and tuned results with intervals and tests",
        "report/*.png": "validation score over learning rate, and paired differences on the test set",
        "best.json": "the best values of each attention; optim=tuned:FOLDER/ATTENTION uses them",
        "runs/*": "the run folders",
    },
    refused=REFUSED_KEYS,
)
