"""The commands `audit` and `tune`, and the words of their command lines. Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from omegaconf import DictConfig

from sliceformer_lab.cli.command import Command
from sliceformer_lab.cli.jobs import check_attentions, command_options, launcher_node
from sliceformer_lab.cli.passed_words import with_passed_words
from sliceformer_lab.commands.compare.compare_options import VARIANTS, CompareOptions
from sliceformer_lab.config.schema import ConfigError
from sliceformer_lab.runs.sweep import override_key

USE_OF_COMMANDS = {
    "tune": "you want the best learning rate of each attention, and a first comparison at it",
    "audit": "you want a verdict: does one attention do more than controls of equal size and equal training time",
    "map": "you want to know what each attention can do: count, look up, move a symbol, sort",
}
REFUSED_KEYS = {
    "study": "a comparison is a sweep of its own; give its task or recipe",
    "resume": "each run is new; leave it out",
    "mode": "each run is new; leave it out",
    "score_test": "trials never score the test set, reporting runs always; leave it out",
    "seed": "a comparison has tuning_seeds=[...], and reporting seeds from 100 on; give seeds=N",
    "optim.lr": "it is chosen for each row; give rates=[...]",
}
LIST_KEYS = ("against", "axes", "rates", "tuning_seeds")


def comparison_command(
    word: str, summary: str, examples: Mapping[str, str], files: Mapping[str, str], refused: Mapping[str, str]
) -> Command:
    """The command `word`, which runs a comparison; `refused` are keys that its runs cannot have, with the reasons."""

    def job(cfg: DictConfig, folder: Path) -> None:
        """Validate the options, run what is left of the comparison, and write its page. Raises LabError."""
        del folder  # it is the option of this name
        options = command_options(cfg, CompareOptions, word, except_node="launcher")
        check_attentions(name for name in options.names if name not in VARIANTS)
        if word == "audit" and not options.others:
            raise ConfigError("against: name at least one attention, or leave it out for all compulsory rows")
        from sliceformer_lab.commands.compare.steps import run_comparison

        run_comparison(word, options, launcher_node(cfg).build())

    return Command(
        word=word,
        summary=summary,
        examples=examples,
        sections=lambda: {"When to use which": USE_OF_COMMANDS, "Written to FOLDER": files},
        job=job,
        own_words=lambda words: words_of_comparison(words, word, refused),
    )


def words_of_comparison(words: Sequence[str], command: str, refused: Mapping[str, str]) -> list[str]:
    """The words as options of a comparison: those that it does not have are put into `words`. Raises ConfigError.

    For `tune`, attention=A,B,C compares A with B and C. If only rates are given, they replace the random points.
    """
    keys = {override_key(word) for word in words}
    renamed = ["trials=0"] if "rates" in keys and "trials" not in keys else []
    for word in words:
        is_subject = override_key(word) == "attention" and not word.startswith(("+", "~"))
        subject, _, others = word.partition("=")[2].strip("[]").partition(",")
        if is_subject and others and command == "audit":
            raise ConfigError(f"{word}: one attention is audited; name the others by against=")
        renamed += [f"subject={subject}"] if is_subject else [word]
        renamed += [f"against=[{others}]"] if is_subject and (others or command == "tune") else []
    return with_passed_words(renamed, command, {name: name for name in LIST_KEYS}, refused)
