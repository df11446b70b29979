"""The arguments of a command line: overrides, flags, and what of the user's own they let in."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, NoReturn

from sliceformer_lab.cli.command import Command
from sliceformer_lab.config.compose import with_conf_folders
from sliceformer_lab.config.explain import parse_word
from sliceformer_lab.config.plugins import package_folders
from sliceformer_lab.config.schema import ConfigError, allowed_targets
from sliceformer_lab.runs.sweep import override_key
from sliceformer_lab.runs.tuned import with_tuned

ALLOW, SEARCH_PATH = ALLOWING = ("allow_targets", "hydra.searchpath")
MULTIRUN = ("-m", "--multirun")
SWITCHES = (("--help", "-h"), MULTIRUN, ("--shell-completion", "-sc"))


@dataclass(frozen=True)
class Arguments:
    """A parsed command line."""

    words: tuple[str, ...]  # overrides
    flags: tuple[str, ...]  # without -m
    multirun: bool
    asks_for_help: bool
    asks_for_options: bool  # for every option with its value
    asks_for_completion: bool
    run_to_join: Path | None  # the folder of a distributed run whose other process this one is


def command_word(argv: Sequence[str], commands: Collection[str]) -> str:
    """The first argument that is a command, else the first that is no flag; '' if there is none. Raises ConfigError."""
    words: list[str] = parse_arguments(argv).overrides
    return next((word for word in words if word in commands), words[0] if words else "")


def parse_arguments(argv: Sequence[str]) -> Namespace:
    """Overrides and flags of arguments without program name and command word. Raises ConfigError."""
    return _build_parser().parse_intermixed_args(list(argv))


@contextmanager
def open_arguments(command: Command, argv: Sequence[str]) -> Iterator[Arguments]:
    """Parses arguments without program name and command word, and lets in what they allow. Raises ConfigError."""
    args = parse_arguments(argv)
    words = tuple(command.own_words(with_tuned(command.overrides(args.overrides))))
    flags = tuple(argument for argument in argv if argument not in (*args.overrides, *MULTIRUN))
    joined = Path(args.join) if args.join else None
    with _users_own(words, args.config_dir):
        yield Arguments(words, flags, args.multirun, args.help, bool(args.cfg), args.shell_completion, joined)


def check_given_once(overrides: Sequence[str]) -> None:
    """Raises ConfigError for a key that a command line gives twice: the last word would silently win."""
    given: dict[str, str] = {}
    for word in overrides:
        key = word.lstrip("+").partition("=")[0]
        if "=" in word and key in given:
            raise ConfigError(f"{key}: given twice, as {given[key]} and {word}; leave one out")
        given[key] = word


@contextmanager
def _users_own(words: Sequence[str], config_dir: str | None) -> Iterator[None]:
    """Adds the user's packages and folders of options: allow_targets, --config-dir and hydra.searchpath.

    Only the command line counts; what a file says of them widens nothing. With allow_targets, modules in the current
    folder can be imported, as they always can under `python -m`. Raises ConfigError.
    """
    given: dict[str, list[Any]] = {key: [_parse_value(w) for w in words if override_key(w) == key] for key in ALLOWING}
    if wrong := [sources for sources in given[SEARCH_PATH] if not isinstance(sources, list)]:
        raise ConfigError(f"hydra.searchpath: given {wrong[0]}, should be a list such as [file://FOLDER]")
    folders = [_folder_of(source) for sources in given[SEARCH_PATH] for source in sources]
    with ExitStack() as stack:
        for prefixes in given[ALLOW]:
            stack.enter_context(allowed_targets(prefixes))
            stack.enter_context(_import_from(str(Path.cwd())))
        stack.enter_context(with_conf_folders([*([config_dir] if config_dir else []), *folders]))
        yield


def _parse_value(word: str) -> Any:
    """The value of an override. Raises ConfigError for a sweep over several."""
    override = parse_word(word)
    if override.is_sweep_override():
        raise ConfigError(f"{word}: cannot be swept; write [...] for a list")
    return override.value()


def _folder_of(source: object) -> str:
    """The folder of a source in hydra.searchpath, file://FOLDER or pkg://PACKAGE. Raises ConfigError."""
    kind, _, place = str(source).rpartition("://")
    if kind == "pkg":
        place = str(next(iter(package_folders(place)), ""))
    if kind not in ("", "file", "pkg") or not place:
        raise ConfigError(f"hydra.searchpath: given {source}, should be file://FOLDER or pkg://PACKAGE")
    return place


@contextmanager
def _import_from(folder: str) -> Iterator[None]:
    """Lets modules in a folder be imported, after all others; not where Python was started without such folders."""
    if sys.flags.safe_path:
        yield
        return
    sys.path.append(folder)
    try:
        yield
    finally:
        sys.path.remove(folder)


class _Parser(ArgumentParser):
    """Raises ConfigError instead of exiting."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{message}; see --help")


def _build_parser() -> ArgumentParser:
    parser = _Parser(add_help=False, allow_abbrev=False)
    parser.add_argument("overrides", nargs="*")
    for flag in SWITCHES:
        parser.add_argument(*flag, action="store_true")
    parser.add_argument("--config-dir", "-cd")
    parser.add_argument("--cfg", "-c", choices=("job",))
    parser.add_argument("--join")  # of the other processes of a distributed run, which start_child starts
    parser.add_argument("--version", action="version", version=f"sliceformer-lab {version('sliceformer-lab')}")
    return parser
