"""The jobs of one command: from what Hydra composed to a run, and how each ended."""

from __future__ import annotations

import logging
import signal
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

from sliceformer_lab.config.checked import check_config
from sliceformer_lab.config.compose import plain_values
from sliceformer_lab.config.schema import ConfigError, allow_targets, construct
from sliceformer_lab.errors import InterruptedRunError, LabError
from sliceformer_lab.runs.folder import CONFIG, read_config
from sliceformer_lab.runs.resume import resumed_config, what_differs
from sliceformer_lab.training.distributed import is_first_process
from sliceformer_lab.training.signals import interrupted

log = logging.getLogger(__name__)

Options = TypeVar("Options")


@dataclass(frozen=True)
class Job:
    """How one job ended: with the monitored metric, or with an error."""

    folder: Path
    of_sweep: bool
    value: float | None = None
    error: LabError | None = None

    def __str__(self) -> str:
        value = "" if self.value is None else f"{self.value:.4f}"
        return f"{self.folder.name}  {self.error.status if self.error else 'ok'}  {self.error or value}"


def recorded_in(
    jobs: list[Job], run: Callable[[DictConfig, Path], float | None]
) -> Callable[[DictConfig], float | None]:
    """The function for Hydra to call; it runs a job in its folder and appends how that ended to `jobs`.

    Hydra sees no error: it would add its own text and end a sweep. Only a signal ends one, by SystemExit.
    """

    def job(cfg: DictConfig) -> float | None:
        folder = Path(HydraConfig.get().runtime.output_dir)
        of_sweep = HydraConfig.get().mode == RunMode.MULTIRUN
        try:
            value = run(cfg, folder)
        except BaseException as raised:
            if isinstance(raised, SystemExit) and not is_first_process():
                raise  # how a run tells Lightning not to kill the others
            error = _told(raised)
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


def _told(error: BaseException) -> LabError:
    """Any error as one to tell in a sentence; the traceback of one that nobody foresaw goes to the job's log."""
    if isinstance(error, LabError):
        return error
    if isinstance(error, KeyboardInterrupt):
        return interrupted(signal.SIGINT)
    log.error("".join(traceback.format_exception(error)))
    if isinstance(error, SystemExit):
        return LabError(f"the job called sys.exit({error.code!r})")
    return LabError(f"{type(error).__name__}: {error}")


def training_job(cfg: DictConfig, folder: Path) -> float | None:
    """Check the configuration and train, or score again. Raises LabError for what the user can mend."""
    overrides = list(HydraConfig.get().overrides.task)
    config = resolved(cfg)
    first = is_first_process()  # the others of a distributed run read what it writes below
    trusted = not first or any(o.lstrip("+").startswith("allow_targets=") for o in overrides)
    allow_targets(config["allow_targets"] if trusted else [])
    checked: Mapping[str, Any] = config
    if first:
        config = _meant(config, overrides)
        checked = check_config(config)
        if config.get("budget") and not config["resume"]:  # a saved configuration has its width already
            from sliceformer_lab.training.budget import within_budget

            config = within_budget(config)
            checked = check_config(config)
        if not config["resume"] and (folder / CONFIG).exists():
            _check_unchanged(config, folder)
        (folder / ".hydra").mkdir(parents=True, exist_ok=True)
        OmegaConf.save(OmegaConf.create(config), folder / ".hydra" / CONFIG)
    from sliceformer_lab.training.run import run

    return run(checked, folder)


def _check_unchanged(config: dict[str, Any], folder: Path) -> None:
    """A sweep started again goes on with its own runs. Raises ConfigError for any other run that a folder holds."""
    if HydraConfig.get().mode != RunMode.MULTIRUN:
        raise ConfigError(f"{folder} holds a run already; go on with resume={folder} or choose another folder")
    saved = read_config(folder)
    if changed := what_differs(saved, config):
        raise ConfigError(f"{folder} holds a run with another {', '.join(changed)}; choose another hydra.sweep.dir")


def resolved(cfg: DictConfig) -> dict[str, Any]:
    """Plain values; paths made absolute, so that they mean the same from any folder. Raises ConfigError."""
    try:
        for key, path in cfg.paths.items():
            if isinstance(path, str):
                cfg.paths[key] = str(Path(path).expanduser().resolve())
        return plain_values(cfg)
    except MissingMandatoryValue as error:
        scale, task = (HydraConfig.get().runtime.choices.get(group) for group in ("scale", "task"))
        raise ConfigError(
            f"scale={scale}: nothing says how large task={task} is then; write conf/scale/_of_task/{scale}/{task}.yaml"
        ) from error
    except OmegaConfBaseException as error:
        raise ConfigError(str(error).splitlines()[0]) from error


def command_options(cfg: DictConfig, kind: type[Options], where: str, apart: str | None = None) -> Options:
    """The options of a command beside training, as its own class of them; `apart` is a node that is none of them.

    Raises ConfigError.
    """
    config = {key: value for key, value in resolved(cfg).items() if key not in ("paths", apart)}
    options: Options = construct({"_target_": f"{kind.__module__}.{kind.__name__}", **config}, where=where)
    return options


def _meant(config: dict[str, Any], overrides: list[str]) -> dict[str, Any]:
    """The configuration to run: that of the folder to resume, if one is named."""
    if config["resume"]:
        if HydraConfig.get().mode == RunMode.MULTIRUN:
            raise ConfigError("resume names one run folder and cannot be part of a multirun")
        return resumed_config(config, overrides)
    if config["mode"] == "eval":
        raise ConfigError("mode=eval scores a finished run again: say which with resume=FOLDER")
    return config
