"""Sorts a command line into a command's own options and those of its training runs. Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hydra.core.override_parser.types import Quote, QuotedString

from sliceformer_lab.config.compose import preset_root
from sliceformer_lab.config.explain import parse_word
from sliceformer_lab.config.schema import ConfigError, nearest
from sliceformer_lab.runs.sweep import override_key

SHARED = ("paths", "allow_targets")  # options of the command that its runs have too


def with_passed_words(
    words: Sequence[str], command: str, lists: Mapping[str, str], refused: Mapping[str, str]
) -> list[str]:
    """The words as options of conf/`command`.yaml: those that it does not have are put into its option `words`.

    `lists` are keys whose values become a list of another name: {"attention": "attentions"}. `refused` are keys that
    no run of the command may get, each with the reason. Raises ConfigError.
    """
    own = preset_root(config_name=command)
    training = preset_root()
    known = sorted({*own, *lists, *training, *training["hydra"]["runtime"]["choices"]})
    kept, passed = [], []
    for word in words:
        key = override_key(word)
        root = key.partition(".")[0]
        if key in lists:
            kept.append(_as_list(word, lists[key]))
            continue
        is_own = key in own or isinstance(own.get(root), dict)
        if is_own:
            kept.append(word)
        if not is_own or root in SHARED:
            _check_option(word, key, known, refused, next(iter(lists.values())))
            passed.append(word)
    quoted = [QuotedString(word.replace("${", r"\${"), Quote.single).with_quotes() for word in passed]
    return [*kept, f"words=[{','.join(quoted)}]"] if passed else kept


def _as_list(word: str, name: str) -> str:
    """attention=a,b as attentions=[a,b]: of a group such as attention, Hydra takes options only."""
    value = word.partition("=")[2]
    return f"{name}={value if value.startswith('[') else f'[{value}]'}"


def _check_option(word: str, key: str, known: list[str], refused: Mapping[str, str], compared: str) -> None:
    """Raises ConfigError for an option that no training run of the command can have."""
    if key in refused:
        raise ConfigError(f"{word}: {refused[key]}")
    root = key.partition(".")[0].partition("@")[0]
    if not word.startswith(("+", "~")) and "=" in word and root not in known:
        raise ConfigError(f"{key}: there is no such key{nearest(root, known)}")
    if parse_word(word).is_sweep_override():
        raise ConfigError(f"{word}: several values, but only {compared} are compared; give one, or [...] for a list")
