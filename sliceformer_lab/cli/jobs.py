"""What jobs do with their composed options: the job of training, and options as values of a class."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

from sliceformer_lab.cli.run_plan import claim_folder, complete_plan, plan_run
from sliceformer_lab.config.checked import RunPlan, check_config
from sliceformer_lab.config.compose import NOT_OF_A_RUN, no_such_option, option_names, plain_values
from sliceformer_lab.config.plain_checks import number_faults, written_data
from sliceformer_lab.config.schema import CheckedNode, ConfigError, check_node, check_options
from sliceformer_lab.errors import DataError, LabError, machine_error
from sliceformer_lab.runs.folder import CONFIG, read_child_config, remove_unstarted
from sliceformer_lab.training.results.observers import log_traceback

if TYPE_CHECKING:  # the command line uses this module before it imports torch
    from sliceformer_lab.training.interfaces import DataModule

log = logging.getLogger(__name__)

Options = TypeVar("Options")


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


def training_job(cfg: DictConfig, folder: Path) -> None:
    """Plan the run and build its data, then train, or score a finished run again. Raises LabError."""
    config = {key: value for key, value in unchecked_values(cfg).items() if key not in NOT_OF_A_RUN}
    plan = plan_run(config, list(HydraConfig.get().overrides.task))
    if not plan.resume and (faults := list(written_data(config, {"hydra.run.dir": str(folder)}))):
        raise ConfigError("; ".join(faults))
    from sliceformer_lab.training.run import run

    data = _data_of(plan, folder)
    plan = complete_plan(plan, data)
    is_new = not (folder / CONFIG).exists()
    claim_folder(plan, folder)
    try:
        run(plan, data, folder)
    except (ConfigError, DataError):
        if is_new:
            remove_unstarted(folder)
        raise


def join_run(folder: Path) -> None:
    """Train in another process of a distributed run, by the configuration that the first one wrote."""
    plan = check_config(read_child_config(folder))
    from sliceformer_lab.training.run import run

    run(plan, _data_of(plan, folder), folder)


def _data_of(plan: RunPlan, folder: Path) -> DataModule:
    from sliceformer_lab.training.build import build_data
    from sliceformer_lab.training.results.prediction_table import read_preprocessing

    trained = read_preprocessing(folder) if plan.mode == "eval" else None
    if trained is None:
        return build_data(plan)
    return build_data(plan, folder, trained[1].classes, trained[1].targets)


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
