"""Logs metrics to CSV in every run, and to Weights & Biases (W&B), Trackio or TensorBoard on request."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pytorch_lightning.loggers import Logger, TensorBoardLogger

from sliceformer_lab.config.checked import RunPlan
from sliceformer_lab.data.images.picture_files import open_picture
from sliceformer_lab.errors import ConfigError
from sliceformer_lab.runs.folder import read_summary
from sliceformer_lab.runs.names import task_folder
from sliceformer_lab.training.context import RunContext
from sliceformer_lab.training.results.observers import Observer
from sliceformer_lab.training.results.wandb_names import config_of, group_of, sentence_of, title_of, type_of
from sliceformer_lab.training.results.wandb_runs import EPOCH, X_AXES, WandbHistory, open_run


class WatchingLogger(Logger):
    """Another logger as an observer of the run: at its first error it is dropped."""

    def __init__(self, logger: Logger) -> None:
        super().__init__()
        self._logger = logger
        self._observer = Observer(f"the logger {type(logger).__name__}")

    @property
    def name(self) -> str | None:
        return self._logger.name

    @property
    def version(self) -> int | str | None:
        return self._logger.version

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        self.use(lambda logger: logger.log_metrics(metrics, step))

    def log_hyperparams(self, params: Any, *args: Any, **kwargs: Any) -> None:  # Lightning's signature
        self.use(lambda logger: logger.log_hyperparams(params, *args, **kwargs))

    def save(self) -> None:
        self.use(lambda logger: logger.save())

    def finalize(self, status: str) -> None:
        self.use(lambda logger: logger.finalize(status))

    def use(self, action: Callable[[Logger], object]) -> None:
        """Calls `action` with the other logger, unless that was dropped."""
        self._observer.run(lambda: action(self._logger))


class PrefixedLogger(WatchingLogger):
    """Another logger for the pretraining of a run, whose metrics it names pretrain/..., and which stays open."""

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        super().log_metrics({f"pretrain/{name}": value for name, value in metrics.items()}, step)

    def finalize(self, status: str) -> None:
        """Does nothing: the training goes on with the other logger."""


def tensorboard_logger(context: RunContext, plan: RunPlan) -> Logger:
    """TensorBoard's event files in the run folder, with the configuration. Raises ConfigError without tensorboard."""
    with _require_package("tensorboard"):
        logger = TensorBoardLogger(context.folder, name="", version="tensorboard")
    logger.log_hyperparams(dict(plan.plain))
    return logger


class TrackioLogger(Logger):
    """A run of Trackio, Hugging Face's dashboard on this machine; it goes on if the run folder does."""

    def __init__(self, project: str, name: str, group: str, config: Mapping[str, Any]) -> None:
        import trackio

        super().__init__()
        self._name = name
        self.run = trackio.init(project, name, group, config=dict(config), resume="allow", embed=False)

    @property
    def name(self) -> str:
        return self._name

    @property
    def version(self) -> str:
        return str(self.run.id)

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        self.run.log(dict(metrics), step)

    def log_hyperparams(self, params: Any, *args: Any, **kwargs: Any) -> None:  # Lightning's signature
        """Does nothing: the run has the configuration from its start."""

    def log_pictures(self, pictures: Sequence[Path], step: int) -> None:
        """Logs pictures and waits until everything is stored."""
        import trackio

        self.run.log({f"pictures/{picture.stem}": trackio.Image(str(picture)) for picture in pictures}, step)
        self.run.finish()


def trackio_logger(context: RunContext, plan: RunPlan, *, project: str = "sliceformer_lab") -> Logger:
    """A Trackio run with the name of its folder, the group and the configuration of the run on W&B.

    Raises ConfigError without trackio.
    """
    folder = context.folder
    with _require_package("trackio"):
        return TrackioLogger(project, run_name(plan, folder), group_of(plan, folder), config_of(plan))


@contextmanager
def _require_package(package: str) -> Iterator[None]:
    """Raises ConfigError where the package of a logger is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"logger={package}: {package} is not installed; pip install 'sliceformer-lab[{package}]'"
        ) from error


def wandb_logger(
    context: RunContext,
    plan: RunPlan,
    *,
    project: str = "sliceformer_lab",
    entity: str | None = None,
    offline: bool | None = None,
    group: str | None = None,
    alerts: bool = False,
    artifacts: Literal["none", "best", "all"] = "none",
) -> Logger:
    """The W&B run of a run folder, which continues if the run does.

    `offline` None: offline without an API key or network. Keys come from the environment or netrc only. `close_wandb`
    reads `alerts` from the run's configuration.
    """
    del alerts
    names, folder = plan.names, context.folder
    run = open_run(
        folder,
        title_of(plan, folder),
        {"project": project, "entity": entity, "offline": offline, "group": group},
        notes=sentence_of(plan, folder),
        job_type=type_of(folder),
        group=group_of(plan, folder),
        tags=[names.task, names.attention, names.recipe, *plan.tags],
        config=config_of(plan),
    )
    for names_of_metrics, axis in X_AXES.items():
        run.define_metric(names_of_metrics, step_metric=axis)
    if context.monitor is not None:  # `WandbHistory` writes its best; W&B's own would be in a column NAME.max
        run.define_metric(context.monitor, summary="none", step_metric=EPOCH)
    return WandbHistory(run, context, artifacts)


def publish(loggers: Sequence[Logger], folder: Path, pictures: Sequence[Path], values: Mapping[str, Any]) -> None:
    """Sends a run's summary values and pictures to its loggers, and its spectra to W&B."""

    def send(logger: Logger) -> None:
        if isinstance(logger, WandbHistory):
            from sliceformer_lab.training.results.wandb_charts import result_row

            logger.log_row(result_row(folder, pictures))
            recorded = read_summary(folder)
            facts = {"digests": recorded.digests, "git_commit": recorded.git_commit}
            logger.experiment.config.update({"params": values["parameters"], **facts}, allow_val_change=True)
            logger.experiment.summary.update(dict(values))
            if logger.artifacts != "none":
                from sliceformer_lab.training.results.wandb_artifacts import log_artifacts

                log_artifacts(logger.experiment, folder, logger.artifacts)
        else:
            _publish_results(logger, pictures, values)

    for logger in loggers:
        if isinstance(logger, WatchingLogger):
            logger.use(send)


def _publish_results(logger: Logger, pictures: Sequence[Path], values: Mapping[str, Any]) -> None:
    """Logs the numbers at the scored step, except validation's, whose curves exist, and the pictures."""
    step = values["best_step"] or 0
    numbers = {
        name: value for name, value in values.items() if isinstance(value, int | float) and not name.startswith("val/")
    }
    logger.log_metrics(numbers, step)
    if isinstance(logger, TensorBoardLogger):
        for picture in pictures:
            with open_picture(picture) as pixels:
                colours = np.asarray(pixels.convert("RGB"))  # a drawn picture has a palette
                logger.experiment.add_image(f"pictures/{picture.stem}", colours, step, dataformats="HWC")
        logger.experiment.close()
    elif isinstance(logger, TrackioLogger):
        logger.log_pictures(pictures, step)


def run_name(plan: RunPlan, folder: Path) -> str:
    """The name of a run on the dashboard and in tables."""
    return f"{task_folder(plan.names.task, plan.data.options)}/{plan.names.attention}/{folder.name}"
