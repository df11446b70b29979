"""Runs a command line: finds its command, composes the options with Hydra, runs one job or many, prints errors.

Imports nothing heavy: torch is imported by the job, after the options are validated.
"""

from __future__ import annotations

import logging
import os
import sys
from argparse import ArgumentParser
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NoReturn

import hydra
from hydra._internal.utils import get_args_parser
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.utils import env_override
from hydra.errors import HydraException
from omegaconf import OmegaConf

from sliceformer_lab.cli.command import Command
from sliceformer_lab.cli.help import PROGRAM
from sliceformer_lab.cli.jobs import Job, as_lab_error, recorded_in
from sliceformer_lab.config.compose import CONF_DIR, conf_folders, search_path, with_conf_folders
from sliceformer_lab.config.explain import explain
from sliceformer_lab.config.hydra_node import checked_hydra_node
from sliceformer_lab.config.plugins import package_folders
from sliceformer_lab.config.schema import ConfigError, allowed_targets, nearest
from sliceformer_lab.errors import InterruptedRunError, LabError
from sliceformer_lab.runs.names import register_resolvers
from sliceformer_lab.runs.processes import PARENT, end_with_parent, is_first_process
from sliceformer_lab.runs.sweep import SWEEP, override_key, planned_jobs
from sliceformer_lab.training.signals import signals_as_errors

ALLOW, SEARCH_PATH = ALLOWING = ("allow_targets", "hydra.searchpath")


def run_program(train: Command, commands: Mapping[str, Callable[[], Command]], argv: Sequence[str]) -> int:
    """Run the command that the first argument names, or else `train`, and return the exit code.

    `commands` maps each word to a function that imports its command; `argv` has no program name.
    """
    if not is_first_process():
        end_with_parent(int(os.environ[PARENT]) if PARENT in os.environ else None)
    arguments = list(argv)
    try:
        _check_current_folder()
        overrides = _parser().parse_known_intermixed_args(arguments)[0].overrides
    except ConfigError as error:
        return _print_error(str(error), 1)
    word = overrides[0] if overrides else ""
    if word in commands:
        arguments.remove(word)
        return run_command(commands[word](), arguments)
    if word and "=" not in word and not word.startswith("~"):
        return _print_error(f"{word} is neither a command nor KEY=VALUE{nearest(word, list(commands))}", 1)
    return run_command(train, arguments)


def _check_config_path(folder: str | None) -> None:
    """Raises ConfigError for a folder in place of our options that Hydra would not find."""
    if folder is not None and not (Path(folder).is_absolute() and Path(folder).is_dir()):
        raise ConfigError(f"--config-path={folder}: there is no such folder; write its absolute path")


def _check_current_folder() -> None:
    """Raises ConfigError if the folder that the program was started in is gone."""
    try:
        Path.cwd()
    except FileNotFoundError:
        raise ConfigError("the current folder does not exist any more; change to another one") from None


def run_command(command: Command, argv: Sequence[str]) -> int:
    """Run a command and return its exit code; `argv` has neither program name nor the command's word."""
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # spinning threads of torch cost 5 times on shared cores
    arguments = list(argv)
    words: list[str] = []
    try:
        args = _parser().parse_intermixed_args(arguments)
        _check_config_path(args.config_path)
        words = [command.override(argument) for argument in args.overrides]
        flags = [argument for argument in arguments if argument not in args.overrides]  # Hydra needs overrides first
        with signals_as_errors(), _users_own(words, args.config_dir):
            if args.help:
                print(command.help_text())  # noqa: T201
                return 0
            return _run_jobs(command, words, flags)
    except InterruptedRunError as error:
        return _print_error(str(error), error.exit_code)
    except (LabError, HydraException) as error:
        return _print_error(explain(error, words, command.config_name), 1)


def _run_jobs(command: Command, words: Sequence[str], flags: Sequence[str]) -> int:
    """Let Hydra compose the options and run each job; returns the exit code."""
    jobs: list[Job] = []
    code = 0
    folders = search_path(conf_folders()[1:])  # they replace the user's own search path, which they contain
    overrides = [*folders, *(word for word in words if override_key(word) != SEARCH_PATH)]
    try:
        register_resolvers()
        with _own_logging(), checked_hydra_node(), _hydra_arguments([*command.implied(words), *overrides, *flags]):
            start = hydra.main(config_path=str(CONF_DIR), config_name=command.config_name, version_base="1.3")
            start(recorded_in(jobs, command.job))()
    except InterruptedRunError as error:  # between jobs
        code = _print_error(str(error), error.exit_code)
    except SystemExit as stop:  # from Hydra's own help, or from a job of a sweep that a signal stopped
        code = stop.code if isinstance(stop.code, int) else 1
    except Exception as error:
        code = _print_error(explain(error, words, command.config_name), 1)
    return max(code, _conclude(jobs, command, was_stopped=code > 128))


@contextmanager
def _users_own(words: Sequence[str], config_dir: str | None) -> Iterator[None]:
    """Adds the user's packages and folders of options: allow_targets, --config-dir and hydra.searchpath.

    Only the command line counts; what a file says of them widens nothing. With allow_targets, modules in the current
    folder can be imported, as they always can under `python -m`. Raises ConfigError.
    """
    given: dict[str, list[Any]] = {key: [_value(w) for w in words if override_key(w) == key] for key in ALLOWING}
    if wrong := [sources for sources in given[SEARCH_PATH] if not isinstance(sources, list)]:
        raise ConfigError(f"hydra.searchpath: given {wrong[0]}, should be a list such as [file://FOLDER]")
    folders = [_folder_of(source) for sources in given[SEARCH_PATH] for source in sources]
    with ExitStack() as stack:
        for prefixes in given[ALLOW]:
            stack.enter_context(allowed_targets(prefixes))
            stack.enter_context(_importable(str(Path.cwd())))
        stack.enter_context(with_conf_folders([*([config_dir] if config_dir else []), *folders]))
        yield


def _value(word: str) -> Any:
    """The value of an override. Raises ConfigError for a sweep over several."""
    override = OverridesParser.create().parse_override(word)
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
def _importable(folder: str) -> Iterator[None]:
    """Lets modules in a folder be imported, after all others."""
    sys.path.append(folder)
    try:
        yield
    finally:
        sys.path.remove(folder)


def _conclude(jobs: list[Job], command: Command, was_stopped: bool) -> int:
    """Print how the jobs ended and finish a sweep. Returns 0, 1 if a job failed, 128 + the number of a signal."""
    errors = [job.error for job in jobs if job.error]
    if any(job.of_sweep for job in jobs):
        print(f"\njobs in {jobs[0].folder.parent}", *jobs, sep="\n  ")  # noqa: T201
        total = max(len(jobs), _num_planned(jobs[0].folder.parent))
        if unfinished := len(errors) + total - len(jobs):
            _print_error(f"{unfinished} of {total} jobs did not finish", 1)
        if command.after_sweep and not was_stopped:
            try:
                command.after_sweep(jobs)
            except Exception as raised:
                errors.append(as_lab_error(raised))
                _print_error(str(errors[-1]), 1)
    else:
        for error in errors:
            _print_error(str(error), 1)
    return max((error.exit_code for error in errors), default=0)


def _num_planned(sweep: Path) -> int:
    """Number of jobs of the sweep in a folder; 0 if that is not known."""
    try:
        content: Any = OmegaConf.to_container(OmegaConf.load(sweep / SWEEP))
        return len(planned_jobs(content["hydra"]))
    except Exception:
        return 0


def _parser() -> ArgumentParser:
    """Hydra's parser of arguments, which raises ConfigError instead of exiting."""

    def refuse(message: str) -> NoReturn:
        raise ConfigError(f"{message}; see --help, and --hydra-help for the flags")

    parser = get_args_parser()
    parser.error = refuse  # type: ignore[method-assign]
    return parser


@contextmanager
def _own_logging() -> Iterator[None]:
    """Remove the log handlers that Hydra adds once the command ends: the caller's process may outlive their files."""
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    try:
        yield
    finally:
        for handler in set(root.handlers) - set(before):
            root.removeHandler(handler)
            handler.close()
        root.handlers[:] = before
        root.setLevel(level)


@contextmanager
def _hydra_arguments(arguments: list[str]) -> Iterator[None]:
    """Put the arguments into sys.argv, which Hydra reads, and have it raise its errors instead of exiting."""
    before = sys.argv
    sys.argv = [before[0], *arguments]
    try:
        with env_override({"HYDRA_FULL_ERROR": "1"}):
            yield
    finally:
        sys.argv = before


def _print_error(sentence: str, code: int) -> int:
    """Print the sentence to stderr and return the exit code."""
    print(f"{PROGRAM}: {sentence}", file=sys.stderr)  # noqa: T201
    return code
