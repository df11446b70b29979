"""Runs a command once: composes its options, and runs its job in its folder."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import hydra
from omegaconf import DictConfig, OmegaConf, open_dict

from sliceformer_lab.cli.command import Command
from sliceformer_lab.cli.console import print_text
from sliceformer_lab.cli.jobs import as_lab_error
from sliceformer_lab.config.compose import CONF_DIR, running_config, search_path
from sliceformer_lab.config.explain import explain
from sliceformer_lab.config.hydra_node import check_hydra_node, check_hydra_words
from sliceformer_lab.config.versions import HYDRA_DEFAULTS
from sliceformer_lab.errors import Interrupted, LabError, machine_error
from sliceformer_lab.runs.names import register_resolvers
from sliceformer_lab.training.processes.signals import stop_behind


def run_once(command: Command, words: Sequence[str]) -> None:
    """Compose a command's options and run its job in its folder. Raises LabError, or Interrupted at a signal."""
    with _compose_options(command, words) as (config, folder), _job_log(command, folder):
        try:
            command.job(config, folder)
        except BaseException as raised:
            stop = stop_behind(raised)
            error = stop if isinstance(stop, Interrupted) else as_lab_error(raised)
            raise error from (None if error is raised else raised)


def print_options(command: Command, words: Sequence[str]) -> None:
    """Print every option of a command with its value. Raises LabError."""
    try:
        register_resolvers()
        with running_config([*command.implied(words), *words], command.config_name) as config:
            print_text(OmegaConf.to_yaml(_without_hydra(config)))
    except Exception as error:
        raise as_sentence(error, words, command) from error


def complete(command: Command, argv: Sequence[str]) -> None:
    """Print what a shell completes, by Hydra's application, which reads sys.argv and then starts nothing."""
    sys.argv[1:] = [*argv, *search_path()]
    hydra.main(config_path=str(CONF_DIR), config_name=command.config_name, **HYDRA_DEFAULTS)(lambda _: None)()


def as_sentence(error: Exception, words: Sequence[str], command: Command) -> LabError:
    """An error outside the job as a LabError."""
    return machine_error(error) or LabError(explain(error, words, command.config_name))


@contextmanager
def _compose_options(command: Command, words: Sequence[str]) -> Iterator[tuple[DictConfig, Path]]:
    """The options of a command, and the folder of its job, which it makes, and removes if nothing was written."""
    with ExitStack() as stack:
        try:
            check_hydra_words(words)
            register_resolvers()
            overrides = [*command.implied(words), *words]
            config = stack.enter_context(running_config(overrides, command.config_name))
            check_hydra_node(config.hydra)
            folder = Path(config.hydra.run.dir).absolute()
            made = [place for place in (folder, *folder.parents) if not place.exists()]
            folder.mkdir(parents=True, exist_ok=True)
        except Exception as error:
            raise as_sentence(error, words, command) from error
        try:
            yield _without_hydra(config), folder
        finally:
            for place in made:
                with suppress(OSError):  # one that has files stays
                    place.rmdir()


def _without_hydra(config: DictConfig) -> DictConfig:
    with open_dict(config):
        del config["hydra"]
    return config


@contextmanager
def _job_log(command: Command, folder: Path) -> Iterator[None]:
    """Sends the log to stdout, and to a file in the folder once there is something to write.

    The caller's handlers are back afterwards. A log file that cannot be written is no error: without this, logging
    prints a traceback for every line.
    """
    root = logging.getLogger()
    before, level, logging.raiseExceptions = root.handlers[:], root.level, False
    handlers: list[logging.Handler] = [logging.StreamHandler(sys.stdout)]
    if command.writes_log:
        name = f"{command.word or 'sliceformer_lab'}.log"
        handlers.append(logging.FileHandler(folder / name, delay=True))
    root.handlers[:] = handlers
    root.setLevel(logging.INFO)
    try:
        yield
    finally:
        for handler in handlers:
            handler.close()
        root.handlers[:] = before
        logging.raiseExceptions = True
        root.setLevel(level)
