"""The tuned options of an attention, which `tune` has written: optim=tuned:FOLDER/ATTENTION. Imports nothing heavy."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sliceformer_lab.config.schema import ConfigError, nearest

BEST_FILE = "best.json"  # in the folder of a search: its data, and for each attention the words of its best values
_VALUE = re.compile(r"[+]{0,2}(optim([.](?!_target_)\w+)*|encoder[.]dropout)=[^$]*")  # no code and no interpolation
_DATA = re.compile(r"[\w.-]+/[0-9a-f]+")  # of `tuned_on`
_TUNED = ("optim=tuned:", "optim='tuned:", 'optim="tuned:')


def with_tuned(words: Sequence[str]) -> list[str]:
    """The words of a command line, with the recorded ones in place of optim=tuned:FOLDER/ATTENTION.

    One of them is tuned_on=TASK/DIGEST, which a run compares with its own data.
    Raises ConfigError.
    """
    return [new for word in words for new in (_read_tuned_words(word) if word.startswith(_TUNED) else [word])]


def _read_tuned_words(word: str) -> list[str]:
    place = Path(word.partition("tuned:")[2].strip("'\"")).expanduser()
    folder, attention = place.parent, place.name
    try:
        content: Any = json.loads((folder / BEST_FILE).read_text(encoding="utf-8"))
        data = str(content.get("tuned_on"))
        found = {str(name): list(map(str, best["words"])) for name, best in content["attention"].items()}
        not_learned = list(map(str, content.get("not_learned", [])))
    except FileNotFoundError:
        raise ConfigError(
            f"{word}: {folder} has no {BEST_FILE}; write optim=tuned:FOLDER/ATTENTION with the folder of a "
            "finished tune"
        ) from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"{word}: {folder / BEST_FILE} cannot be read ({type(error).__name__}: {error})") from error
    if attention in not_learned:
        raise ConfigError(
            f"{word}: {attention} did not learn at any rate in {folder}, so it has no best values; give it other rates "
            "or more steps"
        )
    if attention not in found:
        raise ConfigError(f"{word}: {attention} was not tuned in {folder}{nearest(attention, list(found))}")
    if wrong := [value for value in found[attention] if not _VALUE.fullmatch(value)]:
        raise ConfigError(
            f"{word}: {folder / BEST_FILE} may only set options of optim, and encoder.dropout, not {wrong[0]}"
        )
    if not _DATA.fullmatch(data):
        raise ConfigError(f"{word}: {folder / BEST_FILE} does not name its data; give the command of this tune again")
    return [*found[attention], f"tuned_on={data}"]


def tuned_on(task: str, sha256: str) -> str:
    """The task and the data that values were tuned on, in one word."""
    return f"{task}/{sha256[:12]}"
