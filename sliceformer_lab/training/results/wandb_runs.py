"""Runs on Weights & Biases (W&B): opened, continued after a stop, closed, and uploaded later if there is no server."""

from __future__ import annotations

import logging
import math
import netrc
import os
import shlex
import shutil
from collections.abc import Iterable, Mapping, Sequence
from http.client import HTTPException
from pathlib import Path
from secrets import token_hex
from typing import Any, Literal
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import urlopen

from pytorch_lightning.loggers import WandbLogger

from sliceformer_lab.errors import ConfigError
from sliceformer_lab.runs.folder import read_metrics
from sliceformer_lab.training.context import RunContext
from sliceformer_lab.training.results.observers import Observer, warn_of
from sliceformer_lab.training.results.wandb_names import is_sweep_folder

log = logging.getLogger(__name__)

SERVER = "https://api.wandb.ai"  # unless WANDB_BASE_URL names another
# Waiting for the server: whether it answers, for a run to start, for the rest to be sent at its end.
ANSWER_SECONDS, START_SECONDS, UPLOAD_SECONDS = 5.0, 30.0, 120.0
FORBIDDING_MODES = ("offline", "dryrun", "disabled")  # of WANDB_MODE
NAME_CHARACTERS, TAG_CHARACTERS, ALERT_CHARACTERS = 128, 64, 63  # a server refuses a run with a longer name or tag
STEP, EPOCH = "trainer/global_step", "epoch"
PRETRAINING = "pretrain"  # the folder of that stage in a run, and the prefix of its metrics
ID_FILE = "wandb_id.txt"
FOLDERS = ("wandb", ".wandb")  # W&B takes `.wandb` if it exists
UNSENT = "unsent"  # a file beside the rows of an online run that the server has not received in full
FATAL = "filestream: fatal error"  # in the log of W&B's service, once it has given up sending rows

# The x axis of each metric on W&B. If two patterns matched one name, the server would pick either.
X_AXES = {
    **{"train/*": STEP, "val/*": EPOCH, "test_curve/*": EPOCH, "spectrum/*": EPOCH},
    **{"pretrain/train/*": STEP, "pretrain/val/*": "pretrain/epoch"},
}

HistoryRow = dict[str, Any]
_open_runs: dict[Path, Any] = {}  # by folder; a run that the caller of `sliceformer_lab.run` has open is not ours


class WandbHistory(WandbLogger):
    """A W&B run whose history has the rows of metrics.csv: a continued run adds what is missing, and repeats nothing.

    The number of a row is its step on W&B. A continued run counts from the start of its history again and skips the
    rows that the server has.
    """

    def __init__(self, run: Any, context: RunContext, artifacts: Literal["none", "best", "all"] = "none") -> None:
        super().__init__(experiment=run)
        folder, self._context, self._best = context.folder, context, -math.inf
        self.artifacts = artifacts  # which are logged at the end
        self._earlier = [*_read_rows(folder / PRETRAINING, f"{PRETRAINING}/"), *_read_rows(folder, "")]
        self._first_row = len(self._earlier) if _is_uploaded(folder) else 0  # that the server lacks
        if not run.offline:
            self._first_row = run.starting_step
        self._row = 0

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Logs a row of metrics; before the first one, those of earlier starts up to its step."""
        row = {**metrics, STEP: step or 0}
        self._earlier = [earlier for earlier in self._earlier if _order_row(earlier) < _order_row(row)]
        self.log_row(row)

    def log_row(self, row: HistoryRow) -> None:
        """Logs a row, after those of earlier starts."""
        earlier, self._earlier = self._earlier, []
        for one in [*earlier, row]:
            if self._row >= self._first_row:
                self.experiment.log(one, step=self._row, commit=True)
            self._row += 1
            self._note_best(one)

    def _note_best(self, row: HistoryRow) -> None:
        """Keeps the best monitored value in the summary, under the name that a finished run has there."""
        monitor = self._context.monitor
        if monitor in row and (score := self._context.score(row[monitor])) > self._best:
            self._best = score
            self.experiment.summary.update({monitor: row[monitor]})


def _read_rows(folder: Path, prefix: str) -> list[HistoryRow]:
    """The rows of a stage's metrics.csv, as they were logged."""
    if not (folder / "csv").is_dir():
        return []
    table = read_metrics(folder)
    found = []
    for values in table.to_dict("records"):
        row = {f"{prefix}{name}": value for name, value in values.items() if value == value and name != "step"}
        found.append({**row, STEP: int(values["step"])})
    return found


def _order_row(row: HistoryRow) -> tuple[bool, int]:
    """Where a row belongs in a run: pretraining goes first."""
    return not any(name.startswith(f"{PRETRAINING}/") for name in row), row[STEP]


def open_run(
    folder: Path,
    name: str,
    logger: Mapping[str, Any],
    *,
    group: str,
    tags: Iterable[str | None],
    notes: str | None,
    job_type: str,
    config: Mapping[str, Any],
) -> Any:
    """The W&B run of `folder`, which continues if it exists. `logger` has project, entity, offline and group.

    `offline` None: as `must_be_offline` says. `group` is used if the logger has none.
    A server that refuses the run or does not answer is a warning, and the run is offline. A run that is waiting
    offline stays so, and what this start logs takes the place of what waits. Raises ConfigError as `_run_id`.
    """
    import wandb

    def start(mode: Literal["online", "offline"]) -> Any:
        return wandb.init(
            project=logger["project"],
            entity=logger["entity"],
            mode=mode,
            id=run_id,
            resume="allow" if mode == "online" else None,
            reinit=None if wandb.run is None else "create_new",  # by default W&B would return the caller's run
            dir=str(folder),
            name=_shorten(name, NAME_CHARACTERS),
            group=logger["group"] or group,
            tags=list(dict.fromkeys(_shorten(tag, TAG_CHARACTERS) for tag in tags if tag)),
            notes=notes,
            job_type=job_type,
            config=dict(config),
            settings=wandb.Settings(
                silent=True,
                x_save_requirements=False,  # reads every installed package; the configuration has the versions
                init_timeout=START_SECONDS,
                finish_timeout=UPLOAD_SECONDS,
                finish_timeout_raises=True,
            ),
        )

    run_id, waiting = _run_id(folder), offline_runs(folder)
    offline = logger["offline"]
    if not waiting and not (must_be_offline() if offline is None else offline):
        try:
            _open_runs[folder] = start("online")
            return _open_runs[folder]
        except Exception as error:  # of W&B, its service or its HTTP library
            warn_of("sending to W&B", error)
            if wandb.run is None:  # teardown would end the caller's run too
                wandb.teardown()  # its service would say that the id is in use
    for run in waiting:
        shutil.rmtree(run, ignore_errors=True)
    _open_runs[folder] = start("offline")
    return _open_runs[folder]


def _shorten(text: str, characters: int) -> str:
    """`text` without its middle if it is too long: its end has the seed and the task."""
    cut = characters // 2
    return text if len(text) <= characters else f"{text[: cut - 3]}...{text[-cut:]}"


def send_results(
    folder: Path,
    name: str,
    logger: Mapping[str, Any],
    *,
    notes: str,
    job_type: str,
    tags: Iterable[str],
    config: Mapping[str, Any],
    tables: Mapping[str, Sequence[Mapping[str, Any]]],
    pictures: Mapping[str, tuple[Any, str]],
    numbers: Mapping[str, Any],
) -> None:
    """Sends the results of many runs as a W&B run in their group; `logger` is the node of their logger.

    Tables are records, pictures a file or PIL image and its caption, and numbers are for the summary; unknown ones are
    left out. The job type is a tag too.
    """
    import wandb

    from sliceformer_lab.training.results.wandb_charts import results_table

    (folder / ".wandb").mkdir(exist_ok=True)  # W&B uses it instead of `wandb`, whose config.yaml would look like a run
    tagged = [job_type, *tags]
    run = open_run(
        *(folder, name, logger), group=folder.name, tags=tagged, notes=notes, job_type=job_type, config=config
    )
    try:
        images = {key: wandb.Image(picture, caption=text) for key, (picture, text) in pictures.items()}
        shown = {f"pictures/{key}": image for key, image in images.items()}
        run.log(shown | {key: results_table(records) for key, records in tables.items()})
        run.summary.update({key: value for key, value in numbers.items() if value is not None})
    finally:
        _finish_run(folder, exit_code=0)
        if command := sync_command(folder):
            log.info(f"upload these results to W&B with: {command}")


def _finish_run(folder: Path, exit_code: int) -> None:
    """Ends a run. What the server has not received in time, or refused, is a warning, and `sync_command` uploads it."""
    run = _open_runs.pop(folder)
    rows, service_log = Path(run.settings.sync_dir), Path(run.settings.log_internal)
    try:
        run.finish(exit_code=exit_code)
        unsent = FATAL in service_log.read_text(encoding="utf-8", errors="replace")
    except TimeoutError:
        unsent = not run.offline
    if unsent:
        log.warning("WARNING: W&B has not received the whole run; its rows wait in the run folder")
        (rows / UNSENT).touch()


def _is_uploaded(folder: Path) -> bool:
    """Whether an earlier start has sent rows to the server, or `wandb sync` did."""
    patterns = ("run-*/*.syncstate", "offline-run-*/*.synced")
    return any(list((folder / name).glob(pattern)) for name in FOLDERS for pattern in patterns)


def _run_id(folder: Path) -> str:
    """The id of a folder's run, written at its first start; an agent of a W&B sweep chooses it itself.

    Raises ConfigError for a job of our own sweep in a trial of an agent: W&B gives all its jobs one id.
    """
    file = folder / ID_FILE
    if not file.is_file():
        of_agent = os.environ.get("WANDB_RUN_ID") if "WANDB_SWEEP_ID" in os.environ else None
        if of_agent and is_sweep_folder(folder.parent):
            raise ConfigError(
                "logger=wandb: a trial of a W&B agent is one run, and this is a job of a sweep; give each option one "
                "value, or leave out logger=wandb"
            )
        file.write_text(of_agent or token_hex(8), encoding="utf-8")
    return file.read_text(encoding="utf-8").strip()


def offline_runs(folder: Path) -> list[Path]:
    """The W&B runs in a run or sweep folder that wait to be uploaded."""
    found = sorted(run for name in FOLDERS for run in (folder / name).glob("offline-run-*"))
    return [run for run in found if not any(run.glob("*.synced"))]


def sync_command(folder: Path) -> str | None:
    """The command that uploads what waits in a run or sweep folder; None if nothing does."""
    unsent = sorted(file.parent for name in FOLDERS for file in (folder / name).glob(f"run-*/{UNSENT}"))
    online = [run for run in unsent if not any(run.glob("*.synced"))]
    runs = [str(run) for run in [*online, *offline_runs(folder)]]
    return f"wandb sync {'--include-online ' if online else ''}{shlex.join(runs)}" if runs else None


def close_wandb(folder: Path, status: str, error: str) -> None:
    """Ends the W&B run of a folder, so that the next job of a sweep gets its own; alerts of an error if asked for."""
    if (run := _open_runs.get(folder)) is not None:
        observer = Observer("W&B")
        observer.run(lambda: run.summary.update({"status": status}))
        if status in ("failed", "diverged") and run.config["logger"]["alerts"]:
            observer.run(lambda: run.alert(f"{run.name} {status}"[:ALERT_CHARACTERS], error, level="ERROR"))
        observer.run(lambda: _finish_run(folder, exit_code=int(status != "ok")))


def must_be_offline() -> bool:
    """Whether W&B's own variable forbids to send, or the API key or the connection to the server is missing."""
    return os.environ.get("WANDB_MODE") in FORBIDDING_MODES or not (has_key() and server_answers())


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
