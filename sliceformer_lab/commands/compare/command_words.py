"""The words of the command lines of `audit` and `tune`. Imports nothing heavy."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Iterable, Mapping, Sequence

from sliceformer_lab.cli.jobs import check_attentions
from sliceformer_lab.cli.passed_words import with_passed_words
from sliceformer_lab.commands.compare.compare_options import VARIANTS, SearchOptions
from sliceformer_lab.config.schema import ConfigError
from sliceformer_lab.runs.sweep import override_key

WHEN = {
    "tune": "you want the best learning rate of each attention, and a first comparison at it",
    "audit": "you want a verdict: does one attention do more than controls of equal size and equal time",
    "map": "you want to know what each attention can do: count, look up, carry, sort",
}
REFUSED = {
    "study": "a comparison is a sweep of its own; give its task or recipe",
    "resume": "each run is new; leave it out",
    "mode": "each run is new; leave it out",
    "score_test": "trials never score the test set, reporting runs always; leave it out",
    "seed": "a comparison has tuning_seeds=[...], and reporting seeds from 100 on; give seeds=N",
    "optim.lr": "it is chosen for each row; give rates=[...]",
}
RENAMED = ("subject", "against", "attentions", "probes", "words", "folder", "retry")  # in a command, or not part of it
LISTS = ("against", "axes", "rates", "tuning_seeds")


def words_of_comparison(words: Sequence[str], command: str, refused: Mapping[str, str]) -> list[str]:
    """The words as options of a comparison: those that it does not have are put into `words`. Raises ConfigError.

    Of `tune`, attention=A,B,C compares A with B and C.
    """
    renamed = []
    for word in words:
        is_subject = override_key(word) == "attention" and not word.startswith(("+", "~"))
        subject, _, others = word.partition("=")[2].strip("[]").partition(",")
        if is_subject and others and command == "audit":
            raise ConfigError(f"{word}: one attention is audited; name the others by against=")
        renamed += [f"subject={subject}"] if is_subject else [word]
        renamed += [f"against=[{others}]"] if is_subject and (others or command == "tune") else []
    return with_passed_words(renamed, command, {name: name for name in LISTS}, refused)


def check_names(names: Iterable[str]) -> None:
    """Raises ConfigError for a row that is neither an attention nor one of ours with options of the model."""
    check_attentions(name for name in names if name not in VARIANTS)


def repeat_command(word: str, names: Mapping[str, Sequence[str]], options: SearchOptions) -> str:
    """The command line of a comparison or a map; `names` are its rows and columns."""
    chosen = {field.name: getattr(options, field.name) for field in dataclasses.fields(options)}
    words = [
        *(f"{key}={','.join(given)}" for key, given in names.items() if given),
        *(word for word in options.words if not word.startswith("paths.")),
        *(f"{key}={_word(value)}" for key, value in chosen.items() if key not in RENAMED and value is not False),
    ]
    return f"python -m sliceformer_lab {word} {' '.join(map(shlex.quote, words))}"


def _word(value: object) -> str:
    if isinstance(value, tuple):
        return f"[{','.join(map(_word, value))}]"
    if isinstance(value, float):
        return f"{value:g}"
    return "null" if value is None else "true" if value is True else str(value)
