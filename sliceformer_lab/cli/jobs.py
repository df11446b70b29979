"""The jobs of one command: runs what Hydra composed, and records how it ended."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

from sliceformer_lab.cli.run_plan import claim_folder, complete_plan, plan_run
from sliceformer_lab.config.checked import check_config
from sliceformer_lab.config.compose import NOT_OF_A_RUN, no_such_option, option_names, plain_values
from sliceformer_lab.config.plain_checks import number_faults
from sliceformer_lab.config.schema import CheckedNode, ConfigError, check_node, check_options
from sliceformer_lab.errors import DataError, Interrupted, LabError, machine_error
from sliceformer_lab.runs.folder import CONFIG, remove_unstarted
from sliceformer_lab.runs.job_state import refuse
from sliceformer_lab.runs.processes import is_first_process
from sliceformer_lab.training.processes.signals import stop_behind
from sliceformer_lab.training.results.observers import log_traceback

log = logging.getLogger(__name__)

Options = TypeVar("Options")


@dataclass(frozen=True)
class Job:
    """How one job ended: with the monitored metric, or with an error."""

    folder: Path
    value: float | None = None
    error: LabError | None = None


def recorded_in(
    jobs: list[Job], run: Callable[[DictConfig, Path], float | None]
) -> Callable[[DictConfig], float | None]:
    """The function that Hydra calls: it runs a job in its folder and appends the outcome to `jobs`.

    Errors do not reach Hydra, which would print its own text and end a multirun. A stop passes through it.
    """

    def job(cfg: DictConfig) -> float | None:
        hydra = HydraConfig.get()
        folder = Path(hydra.runtime.output_dir)
        try:
            value = run(cfg, folder)
        except BaseException as raised:
            if isinstance(raised, SystemExit) and not is_first_process():
                raise  # another process of a distributed run; the first one reports for it
            stop = stop_behind(raised)
            error = stop if isinstance(stop, Interrupted) else as_lab_error(raised)
            if hydra.mode == RunMode.MULTIRUN:
                log.error(f"this job {error.status}: {error}")
                refuse(folder, error)
            with suppress(OSError):
                folder.rmdir()  # a run refused before it wrote anything leaves no folder
            if isinstance(error, Interrupted):
                raise error from (None if error is raised else raised)
            jobs.append(Job(folder, error=error))
            return None
        jobs.append(Job(folder, value))
        return value

    return job


def as_lab_error(error: BaseException) -> LabError:
    """Any error as a LabError of one sentence.

    The traceback of a limit of the machine goes to the job's log file, that of an unexpected error to the terminal too.
    """
    if limit := machine_error(error):
        log_traceback(error)
        return limit
    if isinstance(error, LabError):
        return error
    log.error("".join(traceback.format_exception(error)))
    if isinstance(error, SystemExit):
        return LabError(f"the job called sys.exit({error.code!r})")
    return LabError(f"{type(error).__name__}: {error}")


def training_job(cfg: DictConfig, folder: Path) -> float | None:
    """Plan the run and build its data, then train, or score a finished run again. Raises LabError."""
    config = {key: value for key, value in unchecked_values(cfg).items() if key not in NOT_OF_A_RUN}
    words = list(HydraConfig.get().overrides.task)
    is_first = is_first_process()  # the others of a distributed run read the configuration that it writes
    plan = plan_run(config, words) if is_first else check_config(config)
    from sliceformer_lab.training.build import build_data
    from sliceformer_lab.training.results.prediction_table import trained_classes
    from sliceformer_lab.training.run import run

    data = build_data(plan, classes=trained_classes(folder) if plan.mode == "eval" else ())
    if is_first:
        plan = complete_plan(plan, data)
        is_new = not (folder / CONFIG).exists()
        claim_folder(plan, folder)
    try:
        return run(plan, data, folder)
    except (ConfigError, DataError):
        if is_first and is_new:
            remove_unstarted(folder)
        raise


def resolve_options(cfg: DictConfig) -> dict[str, Any]:
    """The options of a command as plain values, with absolute paths, its numbers checked. Raises ConfigError."""
    plain = unchecked_values(cfg)
    if faults := number_faults(plain):
        raise ConfigError("; ".join(faults))
    return plain


def unchecked_values(cfg: DictConfig) -> dict[str, Any]:
    """The composed options as plain values, with absolute paths. Raises ConfigError for one without a value."""
    try:
        for key, path in cfg.paths.items():
            if isinstance(path, str):
                cfg.paths[key] = str(Path(path).expanduser().resolve())
        return plain_values(cfg)
    except OmegaConfBaseException as error:
        if isinstance(error, MissingMandatoryValue) or MissingMandatoryValue.__name__ in str(error):  # of a resolver
            scale, task = (HydraConfig.get().runtime.choices.get(group) for group in ("scale", "task"))
            if scale is None:  # of a command other than training
                raise ConfigError(f"{error.full_key}: a value is needed; write {error.full_key}=...") from error
            raise ConfigError(
                f"scale={scale}: task={task} has no sizes at this scale; write them in conf/scale/{scale}.yaml"
            ) from error
        raise ConfigError(str(error).splitlines()[0]) from error


def command_options(cfg: DictConfig, kind: type[Options], where: str, except_node: str | None = None) -> Options:
    """The root of the configuration, without `paths`, `allow_targets` and `except_node`, as options of class `kind`.

    Raises ConfigError if they do not fit.
    """
    config = {
        key: value for key, value in resolve_options(cfg).items() if key not in ("paths", "allow_targets", except_node)
    }
    options: Options = check_options(kind, config, where).build()
    return options


def launcher_node(cfg: DictConfig) -> CheckedNode:
    """The launcher of a command that starts runs. Raises ConfigError for options that it does not have."""
    return check_node(
        {key: value for key, value in resolve_options(cfg)["launcher"].items() if value is not None}, "launcher"
    )


def check_attentions(names: Iterable[str]) -> None:
    """Raises ConfigError for a name that conf/attention does not have."""
    known = option_names("attention")
    for name in names:
        if name not in known:
            raise ConfigError(no_such_option("attention", name, known))
