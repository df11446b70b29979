"""The command line: composes the configuration with Hydra, tells mistakes in one sentence, runs one job or many.

Imports nothing heavy: torch is loaded by the job, after the configuration stood.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import hydra
from hydra._internal.utils import get_args_parser
from hydra.core.utils import env_override
from omegaconf import DictConfig

from sliceformer_lab.cli.jobs import Job, recorded_in
from sliceformer_lab.config.compose import CONF_DIR
from sliceformer_lab.config.explain import explain
from sliceformer_lab.config.schema import ConfigError
from sliceformer_lab.runs.names import register_resolvers
from sliceformer_lab.training.signals import interrupted


@dataclass(frozen=True)
class Command:
    """What a command line composes, what its help says, and what a job of it does in the job's folder."""

    config_name: str
    help_text: Callable[[], str]
    job: Callable[[DictConfig, Path], float | None]
    implied: Callable[[Sequence[str]], list[str]] = lambda _: []  # overrides that others bring along
    bare_word: str | None = None  # the option that a word without = sets, such as the folder of a report
    after_sweep: Callable[[Sequence[Job]], str | None] = lambda _: None  # what its jobs give together, and what to tell

    def read(self, word: str) -> str:
        """An argument as Hydra's KEY=VALUE."""
        if self.bare_word is None or word.startswith("~") or ("=" in word and not Path(word).exists()):
            return word
        quoted = word.replace("'", r"\'")
        return f"{self.bare_word}='{quoted}'"


def run_command(command: Command, argv: Sequence[str]) -> int:
    """Run a command line and return its exit code; `argv` without the program's name and the command's word."""
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # spinning threads of torch cost 5 times on shared cores
    arguments = list(argv)
    args = Namespace(overrides=[], config_dir=None)
    jobs: list[Job] = []
    code = 0
    try:
        args = _parsed(arguments)
        if args.help:
            print(command.help_text())  # noqa: T201
            return 0
        register_resolvers()
        flags = [argument for argument in arguments if argument not in args.overrides]  # Hydra wants them apart
        args.overrides = [command.read(word) for word in args.overrides]
        with _own_logging(), _called_with([*command.implied(args.overrides), *args.overrides, *flags]):
            start = hydra.main(config_path=str(CONF_DIR), config_name=command.config_name, version_base="1.3")
            start(recorded_in(jobs, command.job))()
    except KeyboardInterrupt:
        code = _tell(str(interrupted(signal.SIGINT)), 130)
    except SystemExit as stop:  # from Hydra's own help, or from a job of a sweep that a signal stopped
        code = stop.code if isinstance(stop.code, int) else 1
    except Exception as error:
        code = _tell(explain(error, args.overrides, args.config_dir, command.config_name), 1)
    return max(code, _conclude(jobs, command))


def _conclude(jobs: list[Job], command: Command) -> int:
    """Tell how the jobs ended; 0 if all ended well, 1 if one failed, 128 + its number if a signal stopped one."""
    errors = [job.error for job in jobs if job.error]
    if any(job.of_sweep for job in jobs):
        print(f"\njobs in {jobs[0].folder.parent}", *jobs, sep="\n  ")  # noqa: T201
        if told := command.after_sweep(jobs):
            print(told)  # noqa: T201
        if errors:
            _tell(f"{len(errors)} of {len(jobs)} jobs did not finish", 1)
    else:
        for error in errors:
            _tell(str(error), 1)
    return max((error.exit_code for error in errors), default=0)


def _parsed(arguments: list[str]) -> Namespace:
    """The arguments as Hydra reads them, flags anywhere. Raises ConfigError for a flag that it does not know."""

    def refuse(message: str) -> NoReturn:
        raise ConfigError(f"{message}; see --help, and --hydra-help for the flags")

    parser = get_args_parser()
    parser.error = refuse  # type: ignore[method-assign]
    return parser.parse_intermixed_args(arguments)


@contextmanager
def _own_logging() -> Iterator[None]:
    """Log handlers last as long as the command: a job's file may be gone when its process goes on to other things."""
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
def _called_with(arguments: list[str]) -> Iterator[None]:
    """Hydra reads sys.argv, and raises its errors only under HYDRA_FULL_ERROR instead of printing them and exiting."""
    before = sys.argv
    sys.argv = [before[0], *arguments]
    try:
        with env_override({"HYDRA_FULL_ERROR": "1"}):
            yield
    finally:
        sys.argv = before


def _tell(sentence: str, code: int) -> int:
    print(f"sliceformer-lab: {sentence}", file=sys.stderr)  # noqa: T201
    return code
