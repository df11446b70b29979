"""Sorts the words of a command line: options of `tune`, and options of the training runs. Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Sequence

from sliceformer_lab.cli.passed_words import with_passed_words

REFUSED = {
    "resume": "each run is new; leave it out",
    "mode": "each run is new; leave it out",
    "study": "a study is a sweep of its own; give its task or recipe",
    "score_test": "trials never score the test set, final runs always; leave it out",
}


def sorted_words(words: Sequence[str]) -> list[str]:
    """The words as options of conf/tune.yaml: those that it does not have are put into `words`. Raises ConfigError."""
    return with_passed_words(words, "tune", {"attention": "attentions"}, REFUSED)
