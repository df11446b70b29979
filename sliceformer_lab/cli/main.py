"""Runs a command line: finds its command, runs one job or a sweep, prints errors.

Imports nothing heavy: torch is imported by the job, after the options are validated.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from io import TextIOWrapper
from pathlib import Path

from hydra.errors import HydraException

from sliceformer_lab.cli.arguments import check_given_once, command_word, open_arguments, parse_arguments
from sliceformer_lab.cli.command import Command
from sliceformer_lab.cli.console import print_error, print_text
from sliceformer_lab.cli.jobs import join_run
from sliceformer_lab.cli.run_once import as_sentence, complete, print_options, run_once
from sliceformer_lab.cli.run_sweep import planned_sweep, run_sweep
from sliceformer_lab.config.schema import ConfigError, nearest
from sliceformer_lab.errors import Interrupted, LabError
from sliceformer_lab.runs.processes import PARENT, end_with_parent, is_first_process
from sliceformer_lab.training.processes.signals import signals_as_errors
from sliceformer_lab.training.processes.slurm_tasks import follow, is_other_task, joined_step


def run_program(train: Command, commands: Mapping[str, Callable[[], Command]], argv: Sequence[str]) -> int:
    """Run the command that an argument names, or else `train`, and return the exit code.

    `commands` maps each word to a function that imports its command; `argv` has no program name.
    """
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # as stderr: it may lack ± or a letter of a class name
    if PARENT in os.environ:
        end_with_parent(int(os.environ[PARENT]))
    arguments = list(argv)
    try:
        _check_current_folder()
        word = command_word(arguments, commands)
    except ConfigError as error:
        return print_error(error)
    if word not in commands and word and "=" not in word and not word.startswith("~"):
        return print_error(ConfigError(f"{word} is neither a command nor KEY=VALUE{nearest(word, list(commands))}"))
    try:
        if word in commands:
            arguments.remove(word)
            return run_command(commands[word](), arguments)
        with signals_as_errors(), joined_step():
            return run_command(train, arguments)
    except (LabError, Interrupted) as error:
        if isinstance(error, Interrupted) and not is_first_process():
            return error.exit_code  # the first process says where the run stopped
        return print_error(error)


def run_command(command: Command, argv: Sequence[str]) -> int:
    """Run a command and return its exit code; `argv` has neither program name nor the command's word.

    Raises Interrupted.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # spinning threads of torch cost 5 times on shared cores
    words: tuple[str, ...] = ()
    try:
        check_given_once(command.overrides(parse_arguments(argv).overrides))
        with signals_as_errors(), open_arguments(command, argv) as arguments:
            words = arguments.words
            if is_other_task():
                follow()
            elif arguments.asks_for_help:
                print_text(command.help_text())
            elif arguments.asks_for_completion:
                complete(command, argv)
            elif arguments.asks_for_options:
                print_options(command, words)
            elif arguments.run_to_join:
                join_run(arguments.run_to_join)
            elif arguments.multirun and not command.sweeps:
                raise ConfigError("-m: only training runs can be swept; give this command once for each value")
            elif command.sweeps and (sweep := planned_sweep(arguments)):
                return run_sweep(sweep, command, arguments, argv)
            else:
                run_once(command, words)
        return 0
    except (LabError, HydraException, OSError) as error:
        if is_other_task():
            return 1  # the first task prints the same
        return print_error(error if isinstance(error, LabError) else as_sentence(error, words, command))


def _check_current_folder() -> None:
    """Raises ConfigError if the folder that the program was started in is gone."""
    try:
        Path.cwd()
    except FileNotFoundError:
        raise ConfigError("the current folder does not exist any more; change to another one") from None
