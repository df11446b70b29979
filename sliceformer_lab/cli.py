"""The command line: composes the configuration with Hydra, tells mistakes in one sentence, runs one job or many.

Imports nothing heavy: torch is loaded by the job, after the configuration stood.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import traceback
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn

import hydra
from hydra._internal.utils import get_args_parser
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from sliceformer_lab.compose import CONF_DIR
from sliceformer_lab.config import ConfigError, allow_targets, check_config
from sliceformer_lab.distributed import is_first_process
from sliceformer_lab.errors import InterruptedRunError, LabError
from sliceformer_lab.explain import explain
from sliceformer_lab.folders import register_resolvers
from sliceformer_lab.jobs import Job, exit_code, summarise
from sliceformer_lab.overview import help_text
from sliceformer_lab.record import CONFIG
from sliceformer_lab.resume import resumed_config
from sliceformer_lab.signals import interrupted

log = logging.getLogger(__name__)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; `argv` without the program's name."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    args = Namespace(overrides=[], config_dir=None)
    jobs: list[Job] = []
    code = 0
    try:
        args = _parsed(arguments)
        if args.help:
            print(help_text())  # noqa: T201
            return 0
        _check_packages()
        register_resolvers()
        flags = [argument for argument in arguments if argument not in args.overrides]
        with _called_with([*args.overrides, *flags]):  # Hydra stops reading at a flag between overrides
            hydra.main(config_path=str(CONF_DIR), config_name="config", version_base="1.3")(_recorded_in(jobs))()
    except KeyboardInterrupt:
        code = _tell(str(interrupted(signal.SIGINT)), 130)
    except SystemExit as stop:  # from Hydra's own help, or from a job of a sweep that a signal stopped
        code = stop.code if isinstance(stop.code, int) else 1
    except Exception as error:
        code = _tell(explain(error, args.overrides, args.config_dir), 1)
    if text := summarise(jobs):
        _tell(text, 0)
    return max(code, exit_code(jobs))


def _parsed(arguments: list[str]) -> Namespace:
    """The arguments as Hydra reads them, flags anywhere. Raises ConfigError for a flag that it does not know."""

    def refuse(message: str) -> NoReturn:
        raise ConfigError(f"{message}; see --help, and --hydra-help for the flags")

    parser = get_args_parser()
    parser.error = refuse  # type: ignore[method-assign]
    return parser.parse_intermixed_args(arguments)


def _check_packages() -> None:
    """Raises ConfigError if a file or folder of the current directory hides one of our packages."""
    root = CONF_DIR.parent
    for name in ("conf", "tasks", "callbacks"):
        found = find_spec(name)
        places = list(found.submodule_search_locations or [str(found.origin)]) if found else []
        if places != [str(root / name)]:
            hiding = f"{places[0]} hides" if places else f"{root} lacks"
            raise ConfigError(f"{hiding} the package {name} of sliceformer_lab; rename it or start from another folder")


@contextmanager
def _called_with(arguments: list[str]) -> Iterator[None]:
    """Hydra reads sys.argv, and raises its errors only under HYDRA_FULL_ERROR instead of printing them and exiting."""
    before, full = sys.argv, os.environ.get("HYDRA_FULL_ERROR")
    sys.argv = [before[0], *arguments]
    os.environ["HYDRA_FULL_ERROR"] = "1"
    try:
        yield
    finally:
        sys.argv = before
        os.environ.pop("HYDRA_FULL_ERROR")
        if full is not None:
            os.environ["HYDRA_FULL_ERROR"] = full


def _recorded_in(jobs: list[Job]) -> Callable[[DictConfig], float | None]:
    """The function that Hydra calls for each job. Hydra sees no error: it would add its own text and stop a sweep."""

    def job(cfg: DictConfig) -> float | None:
        folder = Path(HydraConfig.get().runtime.output_dir)
        of_sweep = HydraConfig.get().mode == RunMode.MULTIRUN
        try:
            value = _run(cfg, folder)
        except BaseException as raised:
            if isinstance(raised, SystemExit) and not is_first_process():
                raise  # Lightning kills all processes if one of them fails
            error = _ending(raised)
            jobs.append(Job(folder, of_sweep, error=error))
            if of_sweep:
                log.error(f"this job {error.status}: {error}")
                if isinstance(error, InterruptedRunError):
                    raise SystemExit(error.exit_code) from raised
            with suppress(OSError):
                folder.rmdir()  # a run refused before it wrote anything leaves no folder
            return None
        jobs.append(Job(folder, of_sweep, value))
        return value

    return job


def _ending(error: BaseException) -> LabError:
    """Any error as one to be told in a sentence; of one that nobody foresaw the traceback goes to the job's log."""
    if isinstance(error, LabError):
        return error
    if isinstance(error, KeyboardInterrupt):
        return interrupted(signal.SIGINT)
    log.error(traceback.format_exc())
    if isinstance(error, SystemExit):
        return LabError(f"the job called sys.exit({error.code!r})")
    return LabError(f"{type(error).__name__}: {error}")


def _run(cfg: DictConfig, folder: Path) -> float | None:
    overrides = list(HydraConfig.get().overrides.task)
    config = _plain(cfg)
    first = is_first_process()  # the others of a distributed run read what it has written below
    trusted = not first or any(o.lstrip("+").startswith("allow_targets=") for o in overrides)
    allow_targets(config["allow_targets"] if trusted else [])
    if first:
        config = _meant(config, overrides)
        check_config(config)
        if not config["resume"] and (folder / CONFIG).exists():
            raise ConfigError(f"{folder} holds a run already; go on with resume={folder} or choose another folder")
        (folder / ".hydra").mkdir(parents=True, exist_ok=True)
        OmegaConf.save(OmegaConf.create(config), folder / ".hydra" / CONFIG)
    from sliceformer_lab.run import run

    return run(config, folder)


def _meant(config: dict[str, Any], overrides: list[str]) -> dict[str, Any]:
    """The configuration to run: that of the folder to resume, if one is named."""
    if config["resume"]:
        if HydraConfig.get().mode == RunMode.MULTIRUN:
            raise ConfigError("resume names one run folder and cannot be part of a multirun")
        return resumed_config(config, overrides)
    if config["mode"] == "eval":
        raise ConfigError("mode=eval scores a finished run again: say which with resume=FOLDER")
    return config


def _plain(cfg: DictConfig) -> dict[str, Any]:
    """The resolved configuration; paths made absolute, so that it means the same from any folder."""
    try:
        for key, path in cfg.paths.items():
            if isinstance(path, str):
                cfg.paths[key] = str(Path(path).expanduser().resolve())
        resolved = OmegaConf.to_container(cfg, resolve=True, throw_on_missing=True)
    except OmegaConfBaseException as error:
        raise ConfigError(" ".join(str(error).split())) from error
    return {str(key): value for key, value in resolved.items()} if isinstance(resolved, dict) else {}


def _tell(sentence: str, code: int) -> int:
    print(f"sliceformer-lab: {sentence}", file=sys.stderr)  # noqa: T201
    return code
