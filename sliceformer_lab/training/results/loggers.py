"""Logs metrics to CSV in every run, and to Weights & Biases (W&B), TensorBoard or MLflow on request."""

from __future__ import annotations

import netrc
import os
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path
from typing import Any, Literal
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import urlopen

import numpy as np
from pytorch_lightning.loggers import Logger, MLFlowLogger, TensorBoardLogger, WandbLogger

from sliceformer_lab.config.checked import RunPlan
from sliceformer_lab.data.images.picture_files import open_picture
from sliceformer_lab.errors import ConfigError
from sliceformer_lab.runs.names import task_folder
from sliceformer_lab.runs.sweep import HYDRA_SWEEP, SWEEP
from sliceformer_lab.training.context import RunContext
from sliceformer_lab.training.results.observers import Observer, warn_of

SERVER = "https://api.wandb.ai"  # unless WANDB_BASE_URL names another
# Waiting for the server: whether it answers, for a run to start, for the rest to be sent at its end.
ANSWER_SECONDS, START_SECONDS, UPLOAD_SECONDS = 5.0, 30.0, 120.0
STEP, EPOCH = "trainer/global_step", "epoch"
# The x axis of each metric on W&B. If two patterns matched one name, the server would pick either.
X_AXES = {
    **{"train/*": STEP, "val/*": EPOCH, "test_curve/*": EPOCH, "spectrum/*": EPOCH},
    **{"pretrain/train/*": STEP, "pretrain/val/*": "pretrain/epoch"},
}


class WatchingLogger(Logger):
    """Another logger as an observer of the run: at its first error it is dropped."""

    def __init__(self, logger: Logger) -> None:
        super().__init__()
        self._logger = logger
        self._observer = Observer(f"the logger {type(logger).__name__}")

    @property
    def name(self) -> str | None:
        """The name of the other logger's experiment."""
        return self._logger.name

    @property
    def version(self) -> int | str | None:
        """The version of the other logger's experiment."""
        return self._logger.version

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        """Passes the metrics on."""
        self.use(lambda logger: logger.log_metrics(metrics, step))

    def log_hyperparams(self, params: Any, *args: Any, **kwargs: Any) -> None:  # Lightning's signature
        """Passes the options on."""
        self.use(lambda logger: logger.log_hyperparams(params, *args, **kwargs))

    def save(self) -> None:
        """Saves the metrics so far."""
        self.use(lambda logger: logger.save())

    def finalize(self, status: str) -> None:
        """Ends the other logger."""
        self.use(lambda logger: logger.finalize(status))

    def use(self, action: Callable[[Logger], object]) -> None:
        """Calls `action` with the other logger, unless that was dropped."""
        self._observer.run(lambda: action(self._logger))


class PrefixedLogger(WatchingLogger):
    """Another logger for the pretraining of a run, whose metrics it names pretrain/..., and which stays open."""

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        """Passes the metrics on."""
        super().log_metrics({f"pretrain/{name}": value for name, value in metrics.items()}, step)

    def finalize(self, status: str) -> None:
        """Does nothing: the training goes on with the other logger."""


def tensorboard_logger(context: RunContext, plan: RunPlan) -> Logger:
    """TensorBoard's event files in the run folder, with the configuration. Raises ConfigError without tensorboard."""
    with _needs("tensorboard"):
        logger = TensorBoardLogger(context.folder, name="", version="tensorboard")
    logger.log_hyperparams(dict(plan.plain))
    return logger


def mlflow_logger(
    context: RunContext,
    plan: RunPlan,
    *,
    experiment: str = "sliceformer_lab",
    tracking_uri: str | None = None,
) -> Logger:
    """An MLflow run with the name of its folder and the configuration.

    Raises ConfigError without mlflow, or if neither `tracking_uri` nor MLFLOW_TRACKING_URI names a server.
    """
    folder, uri = context.folder, tracking_uri or os.environ.get("MLFLOW_TRACKING_URI")
    if uri is None:
        raise ConfigError(
            "logger=mlflow: nothing says where to log; set logger.tracking_uri=http://HOST:PORT or "
            "logger.tracking_uri=sqlite:///FILE, or the environment variable MLFLOW_TRACKING_URI"
        )
    with _needs("mlflow"):
        logger = MLFlowLogger(
            experiment_name=experiment,
            run_name=run_name(plan, folder),
            tracking_uri=uri,
            tags={name: str(value) for name, value in plan.names if value},
        )
    logger.log_hyperparams(dict(plan.plain))
    return logger


@contextmanager
def _needs(package: str) -> Iterator[None]:
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
) -> WandbLogger:
    """A W&B run with the name of its folder.

    `offline` None: offline without an API key or network. Keys come from the environment or netrc only.
    """
    names, folder = plan.names, context.folder
    in_sweep = any((folder.parent / name).is_file() for name in (SWEEP, HYDRA_SWEEP))
    run = open_run(
        folder,
        run_name(plan, folder),
        job_type="train",
        project=project,
        entity=entity,
        offline=offline,
        group=group or (folder.parent.name if in_sweep else names.task),
        tags=[names.task, names.attention, names.recipe, *plan.tags],
        config=plan.plain,
    )
    for names_of_metrics, axis in X_AXES.items():
        run.define_metric(names_of_metrics, step_metric=axis)
    if context.monitor is not None:
        run.define_metric(context.monitor, summary=context.monitor_mode, step_metric=EPOCH)
    return WandbLogger(experiment=run)


def open_run(
    folder: Path,
    name: str,
    *,
    job_type: str,
    project: str,
    entity: str | None,
    offline: bool | None,
    group: str,
    tags: Iterable[str | None],
    config: Mapping[str, Any],
) -> Any:
    """A W&B run with its files in `folder`; `offline` None: offline without an API key or network.

    A server that refuses the run or does not answer is a warning, and the run is offline.
    """
    import wandb

    def start(mode: Literal["online", "offline"]) -> Any:
        return wandb.init(
            project=project,
            entity=entity,
            mode=mode,
            dir=str(folder),
            name=name,
            group=group,
            job_type=job_type,
            tags=list(dict.fromkeys(filter(None, tags))),
            config=dict(config),
            settings=wandb.Settings(silent=True, init_timeout=START_SECONDS, finish_timeout=UPLOAD_SECONDS),
        )

    if must_be_offline() if offline is None else offline:
        return start("offline")
    try:
        return start("online")
    except wandb.Error as error:
        warn_of("sending to W&B", error)
        return start("offline")


def must_be_offline() -> bool:
    """Whether the API key or the connection to the server is missing."""
    return not (has_key() and server_answers())


def publish(loggers: Sequence[Logger], folder: Path, pictures: Sequence[Path], values: Mapping[str, Any]) -> None:
    """Sends a run's summary values and pictures to its loggers, and its spectra to W&B."""

    def send(logger: Logger) -> None:
        if isinstance(logger, WandbLogger):
            for picture in pictures:
                logger.log_image(f"pictures/{picture.stem}", [str(picture)])
            if (folder / "spectrum.npz").is_file():
                _publish_spectra(logger, folder / "spectrum.npz")
            logger.experiment.summary.update(dict(values))
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
                logger.experiment.add_image(f"pictures/{picture.stem}", np.asarray(pixels), step, dataformats="HWC")
        logger.experiment.close()
    elif isinstance(logger, MLFlowLogger):
        for picture in pictures:
            logger.experiment.log_artifact(str(logger.run_id), str(picture), "pictures")


def _publish_spectra(logger: WandbLogger, file: Path) -> None:
    from sliceformer_lab.measures.probe import ProbeRecord
    from sliceformer_lab.training.results.wandb_charts import spectrum_charts

    logger.experiment.log(spectrum_charts(ProbeRecord.load(file)))


def close_wandb(status: str) -> None:
    """Ends the open W&B run, so that the next job of a sweep gets its own."""
    if "wandb" not in sys.modules:  # then no run is open; importing wandb is slow
        return
    wandb = sys.modules["wandb"]
    if (run := wandb.run) is not None:
        observer = Observer("W&B")
        observer.run(lambda: run.summary.update({"status": status}))
        observer.run(lambda: wandb.finish(exit_code=int(status != "ok")))


def run_name(plan: RunPlan, folder: Path) -> str:
    """The name of a run on the dashboard and in tables."""
    return f"{task_folder(plan.names.task, plan.data.options)}/{plan.names.attention}/{folder.name}"


def sync_command(folder: Path) -> str | None:
    """The command that uploads the offline W&B runs in a run or sweep folder; None if there are none."""
    runs = sorted(str(run) for place in ("wandb", ".wandb") for run in (folder / place).glob("offline-run-*"))
    return f"wandb sync {shlex.join(runs)}" if runs else None


def has_key() -> bool:
    """Whether the environment or netrc holds an API key for the server."""
    if os.environ.get("WANDB_API_KEY"):
        return True
    try:
        return netrc.netrc().authenticators(urlsplit(server_url()).hostname or "") is not None
    except (OSError, netrc.NetrcParseError):
        return False


def server_answers() -> bool:
    """Whether the server, or the proxy of the environment in front of it, answers a request in time."""
    try:
        with urlopen(server_url(), timeout=ANSWER_SECONDS):
            return True
    except HTTPError:
        return True
    except (OSError, HTTPException, ValueError):
        return False


def server_url() -> str:
    """The address of the W&B server."""
    return os.environ.get("WANDB_BASE_URL") or SERVER
