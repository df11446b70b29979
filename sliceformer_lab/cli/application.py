"""Runs a command through Hydra, which composes its options: the only place that starts Hydra's application.

Its public `compose` is enough to read options (`config.compose`), but not for launchers and sweepers of others
(hydra/launcher=...), nor for --cfg, --info and --hydra-help: Hydra offers these through `hydra.main` only, which reads
sys.argv.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import hydra
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.utils import env_override

from sliceformer_lab.cli.arguments import SEARCH_PATH, parse_arguments
from sliceformer_lab.cli.command import Command
from sliceformer_lab.cli.jobs import Job, recorded_in
from sliceformer_lab.config.compose import CONF_DIR, conf_folders, search_path
from sliceformer_lab.config.explain import explain
from sliceformer_lab.config.hydra_node import check_hydra_nodes
from sliceformer_lab.config.versions import HYDRA_DEFAULTS
from sliceformer_lab.errors import LabError, machine_error
from sliceformer_lab.runs.names import register_resolvers
from sliceformer_lab.runs.sweep import override_key


def run_application(
    command: Command, words: Sequence[str], flags: Sequence[str], *, jobs_known: bool = False
) -> list[Job]:
    """Let Hydra compose the options and run each job, and return how the jobs ended.

    With `jobs_known` the jobs of a multirun have been composed and checked. Raises LabError for an error outside the
    jobs, Interrupted at a signal, and SystemExit where Hydra ends the program, as after its own help.
    """
    jobs: list[Job] = []
    folders = search_path(conf_folders()[1:])  # they replace the user's own search path, which they contain
    given = parse_arguments(flags)
    config_name, folder = given.config_name or command.config_name, Path(given.config_path or CONF_DIR)
    try:
        register_resolvers()
        overrides = [*command.implied(words), *(word for word in words if override_key(word) != SEARCH_PATH)]
        if not given.shell_completion:  # its words are no options, and it starts nothing
            check_hydra_nodes(overrides, config_name, folder, multirun=given.multirun, jobs_known=jobs_known)
        with (
            _own_hydra(),
            _own_logging(),
            _hydra_arguments([*folders, *overrides, *flags]),
        ):
            start = hydra.main(config_path=str(CONF_DIR), config_name=command.config_name, **HYDRA_DEFAULTS)
            start(recorded_in(jobs, command.job))()
    except Exception as error:
        raise as_sentence(error, words, command) from error
    return jobs


def as_sentence(error: Exception, words: Sequence[str], command: Command) -> LabError:
    """An error outside the jobs as a LabError."""
    return machine_error(error) or LabError(explain(error, words, command.config_name))


@contextmanager
def _own_hydra() -> Iterator[None]:
    """Lets an application start while another one runs, as the runs of a search do, and restores that one."""
    instance, config = GlobalHydra.instance(), HydraConfig.instance()
    before = instance.hydra, config.cfg
    instance.clear()
    try:
        yield
    finally:
        instance.hydra, config.cfg = before


@contextmanager
def _own_logging() -> Iterator[None]:
    """Remove the log handlers that Hydra adds once the command ends: the caller's process may outlive their files.

    A log file that cannot be written is no error: without this, logging prints a traceback for every line.
    """
    root = logging.getLogger()
    before, level, logging.raiseExceptions = root.handlers[:], root.level, False
    try:
        yield
    finally:
        for handler in set(root.handlers) - set(before):
            root.removeHandler(handler)
            handler.close()
        root.handlers[:] = before
        logging.raiseExceptions = True
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
