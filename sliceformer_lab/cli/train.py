"""Training, the command without a word, with its help."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sliceformer_lab.cli.command import Command
from sliceformer_lab.cli.help import Sections, first_comments
from sliceformer_lab.cli.jobs import training_job
from sliceformer_lab.config.compose import option_names
from sliceformer_lab.runs.resume import saved_task
from sliceformer_lab.runs.sweep import Sweep

EXAMPLES = {
    "": "train CSP on real 8 x 8 digits, about a minute",
    "task=cifar10 attention=mha": "another task, another attention (downloads 170 MB once)",
    "task=mnist encoder=small attention.group_size=4": "change options; --cfg job lists them all",
    "recipe=csp/table3_cifar10 attention=csp": "a row of a paper's table, next to the printed number in the report",
    "-m attention=mha,csp,identity seed=0,1,2": "every combination, one after the other",
    "-m attention=mha,csp seed=0,1,2 launcher=local": "several at once; the same command again goes on after a stop",
    "-m 'zip(attention=[mha,csp],optim.lr=[1e-3,3e-4])'": "options that vary together",
    "study=csp_table1 scale=small": "a paper's table in minutes a run, with a report at the end",
    "task=cifar10 attention=csp pretrain=masked": "first fill in hidden patches of the training images, then train",
    "resume=FOLDER": "continue a run that was stopped",
    "mode=eval resume=FOLDER": "score a finished run again",
    "debug=fast": "one batch of everything, to see that it runs",
    "--cfg job": "print the whole configuration, every option with its value",
}
OTHER_GROUPS = ("encoder", "block", "optim", "pretrain", "trainer", "callbacks", "logger", "launcher", "debug")


def train_command(
    words: Callable[[], Mapping[str, str]] = dict, after_sweep: Callable[[Sweep], None] = lambda _: None
) -> Command:
    """The command that trains; `words` returns the other commands, each with a line, for its help."""
    return Command(
        word="",
        summary="Train and compare replacements of multi-head attention.",
        arguments="[-m] [KEY=VALUE ...]",
        examples=EXAMPLES,
        sections=lambda: {"Commands (sliceformer-lab COMMAND --help)": words(), **_list_choices()},
        job=training_job,
        implied=saved_task,
        sweeps=True,
        after_sweep=after_sweep,
    )


def _list_choices() -> Sections:
    return {
        "Tasks (task=)": first_comments("task"),
        "Attentions (attention=)": first_comments("attention"),
        "Other groups": {f"{group}=": ", ".join(option_names(group)) for group in OTHER_GROUPS},
        "Studies (study=), multiruns of recipes": first_comments("study"),
        "Scales (scale=)": first_comments("scale"),
        "Recipes (recipe=)": _by_table(option_names("recipe")),
    }


def _by_table(names: list[str]) -> dict[str, str]:
    """The names by their first word, a paper's table; long lists are abbreviated."""
    tables: dict[str, list[str]] = {}
    for name in names:
        table, _, rest = name.partition("_")
        tables.setdefault(f"{table}_" if rest else table, []).append(rest)
    return {
        table: ", ".join(rest) if len(rest) < 10 else f"{rest[0]} ... {rest[-1]} ({len(rest)}; see conf/recipe)"
        for table, rest in tables.items()
    }
