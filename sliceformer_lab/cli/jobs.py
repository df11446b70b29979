"""The jobs of one command: validates what Hydra composed, runs each job, and records how it ended."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

from sliceformer_lab.config.checked import check_config
from sliceformer_lab.config.compose import (
    NOT_OF_A_RUN,
    compose_root,
    no_such_option,
    option_names,
    plain_values,
    written_option,
)
from sliceformer_lab.config.plain_checks import missing_files, new_run_faults, number_faults
from sliceformer_lab.config.schema import CheckedNode, ConfigError, check_node, check_options
from sliceformer_lab.errors import DataError, InterruptedRunError, LabError, machine_error
from sliceformer_lab.runs.files import write_text
from sliceformer_lab.runs.folder import CONFIG, read_config, recorded_choices
from sliceformer_lab.runs.job_state import refuse
from sliceformer_lab.runs.names import is_restarted
from sliceformer_lab.runs.papers import repeated_cell
from sliceformer_lab.runs.processes import is_first_process
from sliceformer_lab.runs.resume import resumed_config, what_differs, with_values
from sliceformer_lab.runs.sweep import override_key
from sliceformer_lab.training.observers import log_traceback
from sliceformer_lab.training.signals import caught

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

    Errors do not reach Hydra, which would print its own text and end a multirun. A signal ends it by SystemExit.
    """

    def job(cfg: DictConfig) -> float | None:
        hydra = HydraConfig.get()
        folder = Path(hydra.runtime.output_dir)
        try:
            value = run(cfg, folder)
        except BaseException as raised:
            if isinstance(raised, SystemExit) and not is_first_process():
                raise  # another process of a distributed run; the first one reports for it
            error = as_lab_error(raised)
            jobs.append(Job(folder, error=error))
            if hydra.mode == RunMode.MULTIRUN:
                log.error(f"this job {error.status}: {error}")
                refuse(folder, error)
                number = caught()
                if isinstance(error, InterruptedRunError) or number is not None:
                    raise SystemExit(error.exit_code if number is None else 128 + number) from raised
            with suppress(OSError):
                folder.rmdir()  # a run refused before it wrote anything leaves no folder
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
    """Validate the configuration, then train, or score a finished run again. Raises LabError."""
    overrides = list(HydraConfig.get().overrides.task)
    config = {key: value for key, value in resolved(cfg).items() if key not in NOT_OF_A_RUN}
    first = is_first_process()  # the others of a distributed run read the file written below
    if first:
        config = _config_to_run(config, overrides)
        if missing := missing_files(config):
            raise DataError("; ".join(missing))
        given = {override_key(word) for word in overrides}
        if not config["resume"] and (faults := new_run_faults(config, given)):  # saved: perhaps on a larger machine
            raise ConfigError("; ".join(faults))
    checked = check_config(config)
    if first:
        from sliceformer_lab.training.build import check_accelerator
        from sliceformer_lab.training.other_processes import check_processes

        check_accelerator(config["trainer"])
        check_processes(config)
        if not config["resume"]:  # a saved configuration has its widths and its cell already
            config = _as_new_run(config, overrides)
            checked = check_config(config) if config["budget"] else replace(checked, plain=config)
            if (folder / CONFIG).exists():
                _check_unchanged(config, folder)
        (folder / ".hydra").mkdir(parents=True, exist_ok=True)
        write_text(folder / ".hydra" / CONFIG, OmegaConf.to_yaml(OmegaConf.create(config)))
    from sliceformer_lab.training.run import run

    return run(checked, folder)


def _as_new_run(config: dict[str, Any], overrides: list[str]) -> dict[str, Any]:
    """The configuration with the widths of its budget and the published cell that it repeats. Raises ConfigError."""
    _check_recipe(config["names"]["recipe"], overrides)
    if config["budget"]:
        from sliceformer_lab.training.budget import within_budget

        config = within_budget(config)
    return config | {"published": repeated_cell(config)}


def _check_recipe(recipe: str | None, overrides: list[str]) -> None:
    """Raises ConfigError if the command line chooses an encoder or optimiser in which the recipe sets keys.

    The recipe's keys would change the chosen one: encoder=tiny would have the recipe's depth.
    """
    if recipe not in option_names("recipe"):
        return
    written = written_option("recipe", recipe)
    given = dict(word.split("=", 1) for word in overrides if "=" in word)
    for node in {"encoder", "optim"}.intersection(given, written):
        own = compose_root([f"recipe={recipe}"])["hydra"]["runtime"]["choices"][node]
        if given[node] != own:
            keys = ", ".join(f"{node}.{key}" for key in written[node])
            raise ConfigError(
                f"{node}={given[node]}: recipe={recipe} sets {keys} itself, which would change {given[node]}; "
                f"set these keys on the command line, or choose task, block and {node} without a recipe"
            )


def _check_unchanged(config: dict[str, Any], folder: Path) -> None:
    """Let a sweep or Slurm job that is started again continue its own runs. Raises ConfigError for any other run."""
    if HydraConfig.get().mode != RunMode.MULTIRUN and not is_restarted():
        raise ConfigError(f"{folder} holds a run already; continue it with resume={folder} or choose another folder")
    saved = with_values(read_config(folder), dict.fromkeys(recorded_choices(folder)))  # as the user wrote it
    if changed := what_differs(saved, config):
        raise ConfigError(f"{folder} holds a run with another {', '.join(changed)}; choose another folder")


def resolved(cfg: DictConfig) -> dict[str, Any]:
    """The configuration as plain values, with absolute paths. Raises ConfigError."""
    try:
        for key, path in cfg.paths.items():
            if isinstance(path, str):
                cfg.paths[key] = str(Path(path).expanduser().resolve())
        plain = plain_values(cfg)
    except OmegaConfBaseException as error:
        if isinstance(error, MissingMandatoryValue) or MissingMandatoryValue.__name__ in str(error):  # of a resolver
            scale, task = (HydraConfig.get().runtime.choices.get(group) for group in ("scale", "task"))
            if scale is None:  # of a command other than training
                raise ConfigError(f"{error.full_key}: a value is needed; write {error.full_key}=...") from error
            raise ConfigError(
                f"scale={scale}: task={task} has no sizes at this scale; write them in conf/scale/{scale}.yaml"
            ) from error
        raise ConfigError(str(error).splitlines()[0]) from error
    if faults := number_faults(plain):
        raise ConfigError("; ".join(faults))
    return plain


def command_options(cfg: DictConfig, kind: type[Options], where: str, except_node: str | None = None) -> Options:
    """The root of the configuration, without `paths`, `allow_targets` and `except_node`, as options of class `kind`.

    Raises ConfigError if they do not fit.
    """
    config = {key: value for key, value in resolved(cfg).items() if key not in ("paths", "allow_targets", except_node)}
    options: Options = check_options(kind, config, where).build()
    return options


def launcher_node(cfg: DictConfig) -> CheckedNode:
    """The launcher of a command that starts runs. Raises ConfigError for options that it does not have."""
    return check_node({key: value for key, value in resolved(cfg)["launcher"].items() if value is not None}, "launcher")


def check_attentions(names: Iterable[str]) -> None:
    """Raises ConfigError for a name that conf/attention does not have."""
    known = option_names("attention")
    for name in names:
        if name not in known:
            raise ConfigError(no_such_option("attention", name, known))


def _config_to_run(config: dict[str, Any], overrides: list[str]) -> dict[str, Any]:
    """The composed configuration, or with `resume` that of the run folder. Raises ConfigError."""
    if config["resume"]:
        if HydraConfig.get().mode == RunMode.MULTIRUN:
            raise ConfigError("resume names one run folder and cannot be part of a multirun")
        return resumed_config(config, overrides)
    if config["mode"] == "eval":
        raise ConfigError("mode=eval scores a finished run again: name it with resume=FOLDER")
    return config
