"""Finds all runs below a folder, finished or not, and the jobs of sweeps that left no run."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from omegaconf.errors import OmegaConfBaseException

from sliceformer_lab.errors import LabError, RunFolderError
from sliceformer_lab.runs.files import name_of
from sliceformer_lab.runs.folder import CHILD_CONFIG, CONFIG, SUMMARY, is_held, read_config, read_summary
from sliceformer_lab.runs.job_state import state_of
from sliceformer_lab.runs.papers import FULL_SCALE
from sliceformer_lab.runs.run_summary import RunProtocol, RunSummary
from sliceformer_lab.runs.score_options import flat_options
from sliceformer_lab.runs.sweep import SWEEP_FILE, read_sweep

REPLICATES = ("seed", "data.split_seed")  # runs of one row differ only in these

Unit = tuple[Any, Any]


@dataclass(frozen=True)
class RunRecord:
    """The content of one run folder. Facts that only a finished run has are None or empty."""

    folder: Path
    name: str  # path of the folder, relative to the collected folder
    summary: RunSummary
    status: str

    @property
    def task(self) -> str:
        """Name of its task."""
        return self.summary.task

    @property
    def attention(self) -> str:
        """Name of its attention."""
        return self.summary.attention

    @property
    def scale(self) -> str:
        """The scale it was run at."""
        return self.summary.scale or FULL_SCALE

    @property
    def unit(self) -> Unit:
        """Seed and split, which distinguish it from the other runs of its row."""
        return self.summary.seed, self.summary.split_seed

    @property
    def choices(self) -> set[str]:
        """The options that followed from its examples, such as data.batch_size; precision is of the machine too."""
        return {choice.option for choice in self.summary.choices} - {"trainer.precision"}

    @property
    def error(self) -> str:
        """The first line of the error that ended it; '' without one."""
        return (self.summary.error or "").partition("\n")[0]

    @cached_property
    def options(self) -> dict[str, Any]:
        """All options by their path, such as encoder.depth."""
        return dict(flat_options(self.summary.options))

    @property
    def protocol(self) -> RunProtocol:
        """What the results depend on besides the options; not recorded by a run that did not finish."""
        return self.summary.protocol

    @property
    def mixed_data(self) -> list[str]:
        """The splits that trained it or selected its epoch with other examples at an earlier start: train, val."""
        changed = {split for start in self.summary.starts for split in start.changed_data or ()}
        return sorted(changed & {"train", "val"})

    def size_per_train(self, split: str) -> float:
        """The number of examples of a split divided by that of training examples; 0 if they are not known."""
        size = {"val": self.protocol.num_val, "test": self.protocol.num_test}[split]
        return size / self.protocol.num_train if self.protocol.num_train and size else 0.0

    @cached_property
    def selection(self) -> str | None:
        """The rule that selects the epoch; read from the configuration if the run did not finish."""
        if self.protocol.is_recorded:
            return self.protocol.selection
        try:
            known = read_config(self.folder).get("selection")
        except (RunFolderError, OmegaConfBaseException, OSError):
            return None
        return None if known is None else str(known)

    @property
    def data(self) -> str:
        """The name of its data: as recorded, or of the user's file or folder; '' if neither is known."""
        known = self.protocol.data or self.options.get("data.name")
        path = self.options.get("data.file") or self.options.get("data.root")
        if not known and path and "data.name" in self.options:
            return name_of(str(path))
        return str(known or "")

    @property
    def monitored(self) -> str | None:
        """The metric that selected the epoch, without its split, such as accuracy."""
        metric = self.summary.best.metric
        return None if metric is None else metric.partition("/")[2]

    def metric(self, name: str) -> float | None:
        """A finite metric of a finished run; a test metric may come from the epoch that the test set selected."""
        value = self.summary.metric(name)
        return value if self.status == "ok" and value is not None and math.isfinite(value) else None


@dataclass(frozen=True)
class MissingRun:
    """A planned job of a sweep without a readable summary."""

    sweep: str
    job: int
    overrides: tuple[str, ...]
    sibling: Path | None  # the folder of a job that differs only in its seeds
    reason: str | None = None  # why it was refused

    def __str__(self) -> str:
        reason = f" ({self.reason})" if self.reason else ""
        return f"{self.sweep}, job {self.job}: {' '.join(self.overrides)}{reason}"


@dataclass(frozen=True)
class Collection:
    """The runs below a folder."""

    folder: Path
    runs: list[RunRecord] = field(default_factory=list)
    unreadable: dict[str, str] = field(default_factory=dict)  # reason, by folder
    missing: list[MissingRun] = field(default_factory=list)


def collect(folder: Path) -> Collection:
    """All runs below `folder`. Raises LabError if there are none."""
    found = Collection(folder)
    sweeps = []
    for place, files in walk_runs(folder):
        name = place.relative_to(folder).as_posix()
        if SWEEP_FILE in files:
            sweeps.append(place)
        if SUMMARY in files:
            try:
                found.runs.append(read_run(place, name))
            except RunFolderError as error:
                found.unreadable[name] = str(error)
        elif CONFIG in files or CHILD_CONFIG in files:
            found.unreadable[name] = f"no {SUMMARY}: the run ended before it started to train"
    for sweep in sweeps:
        _add_missing(found, sweep)
    if not (found.runs or found.unreadable or found.missing):
        raise LabError(f"{folder} holds no runs; name a folder with run folders in it, such as outputs")
    return found


def walk_runs(folder: Path) -> Iterator[tuple[Path, set[str]]]:
    """Folders and their files in a fixed order, without the folders inside a run folder.

    Links to folders elsewhere are followed, those to a folder in `folder` are not: no run comes twice.
    """
    top, seen = folder.resolve(), set[Path]()
    for place, folders, files in os.walk(folder, followlinks=True):
        path, real = Path(place), Path(place).resolve()
        if real in seen or (path.is_symlink() and path != folder and real.is_relative_to(top)):
            folders.clear()
            continue
        seen.add(real)
        yield path, set(files)
        is_run = SUMMARY in files or (CONFIG in files and path != folder)
        folders[:] = [] if is_run else sorted(name for name in folders if not name.startswith("."))


def read_run(folder: Path, name: str) -> RunRecord:
    """The run in a folder, which is called `name`. Raises RunFolderError."""
    summary = read_summary(folder)
    status = summary.status
    if status == "running" and not is_held(folder):
        status = "killed"  # no process holds it, so its process ended without writing a status
    return RunRecord(folder, name, summary, status)


def known_run(folder: Path) -> RunRecord | None:
    """The run in a folder; None if it was refused before it began, or cannot be read."""
    try:
        return read_run(folder, folder.name)
    except RunFolderError:
        return None


def known_runs(folder: Path, prefix: str = "") -> list[RunRecord]:
    """The runs in a folder whose names begin with `prefix`, sorted by them."""
    found = (known_run(place) for place in sorted(folder.glob(f"{prefix}*")))
    return [run for run in found if run is not None]


def _add_missing(found: Collection, sweep: Path) -> None:
    """Adds the planned jobs of a sweep, and those without a readable summary."""
    name = sweep.name if sweep == found.folder else sweep.relative_to(found.folder).as_posix()
    try:
        plan = read_sweep(sweep)
    except RunFolderError as error:
        found.unreadable[f"{name}/{SWEEP_FILE}"] = str(error)
        return
    readable = {run.folder for run in found.runs}
    started = {job: plan.place(job) for job in plan.jobs if plan.place(job) in readable}
    for number, job in enumerate(plan.jobs):
        if job in started:
            continue
        wanted = _without_seeds(job.words)
        sibling = next((place for other, place in started.items() if _without_seeds(other.words) == wanted), None)
        found.missing.append(MissingRun(name, number, job.words, sibling, state_of(plan.place(job)).error))


def _without_seeds(overrides: tuple[str, ...]) -> set[str]:
    return {word for word in overrides if word.partition("=")[0] not in REPLICATES}


def moment(text: object) -> float:
    """Seconds since 1970 of a time such as 2026-11-27T09:00:00+09:00; one without a zone is of this machine's.

    A text that is no time is before all times.
    """
    try:
        return datetime.fromisoformat(str(text)).timestamp()
    except (ValueError, OverflowError, OSError):
        return -math.inf
