"""Opens the models that an analysis measures: those of runs and untrained controls, all on the same samples."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from omegaconf.errors import OmegaConfBaseException
from pytorch_lightning import seed_everything
from pytorch_lightning.utilities.seed import isolate_rng
from rich.progress import track

from sliceformer_lab.batch import Batch
from sliceformer_lab.commands.inspect.inspect_options import Checkpoint, InspectOptions
from sliceformer_lab.config.checked import RunPlan, check_config
from sliceformer_lab.config.compose import load_option
from sliceformer_lab.errors import DataError, LabError
from sliceformer_lab.runs.collect import Collection, collect
from sliceformer_lab.runs.controls import controls, is_control
from sliceformer_lab.runs.folder import known_summary, load_weights, read_config, scored_checkpoint
from sliceformer_lab.runs.groups import Table, tables
from sliceformer_lab.runs.plain_text import PlainConsole
from sliceformer_lab.training.build import build_data, build_task
from sliceformer_lab.training.interfaces import DataModule
from sliceformer_lab.training.saved.same_data import (
    changed_splits,
    check_recorded_encoding,
    describe_splits,
    warn_of_other_code,
)

UNUSABLE = (LabError, KeyError, TypeError, ValueError, OSError, OmegaConfBaseException)  # errors of foreign runs
MAX_TOKEN_PAIRS = 2**24  # token pairs in a forward pass, N^2 for each sample, so that attention maps fit in memory


@dataclass(frozen=True)
class Source:
    """The origin of a model: a run, or a run's configuration with a control in place of its attention."""

    attention: str
    label: str  # the attention and the options that differ from those of most runs
    plan: RunPlan
    folder: Path | None = None  # None: an untrained control

    @property
    def name(self) -> str:
        """The run's folder, or a description of an untrained control."""
        return f"untrained {self.label}, seed {self.plan.seed}" if self.folder is None else str(self.folder)

    def model(self, checkpoint: Checkpoint) -> Any:
        """The task with these weights, in evaluation mode; random generators keep their state.

        `init` is the model before training, rebuilt from the run's seed; `best` is the checkpoint that the run scored.
        Raises RunFolderError if the checkpoint is missing or of another model, and ConfigError if this version does
        not have the run's options.
        """
        with isolate_rng():
            seed_everything(self.plan.seed, verbose=False)
            task = build_task(self.plan, build_data(self.plan).spec)
            if checkpoint == "init":
                task.initialise()
        if checkpoint != "init" and self.folder is not None:  # controls have no other
            selection = self.plan.selection if checkpoint == "best" else "last"
            warn_of_other_code(self.folder)
            load_weights(task, scored_checkpoint(selection, self.folder))
        return task.eval()


@dataclass(frozen=True)
class Opened:
    """A model at one checkpoint."""

    source: Source
    checkpoint: Checkpoint
    model: Any
    is_last: bool = True  # of the checkpoints of its source

    @property
    def facts(self) -> dict[str, Any]:
        """The columns that identify the model in a table."""
        return {
            "attention": self.source.label,
            "control": is_control(self.source.attention),
            "checkpoint": self.checkpoint,
            "seed": self.source.plan.seed,
            "run": "" if self.source.folder is None else self.source.folder.name,
        }


@dataclass
class Group:
    """Runs with one task, data and protocol, measured on the same samples."""

    title: str
    task: str
    sources: list[Source]
    split_seed: int | None  # of the first run, used for all, so that validation samples are equal
    data_root: str | None = None  # None: where the runs read their data
    stage: str = "val"  # the split of the samples
    fingerprint: dict[str, Any] = field(default_factory=dict)
    other_splits: set[int] = field(default_factory=set)  # split seeds of measured runs that held out other samples
    _splits: dict[str, tuple[DataModule, Any]] = field(default_factory=dict)

    @property
    def note(self) -> str:
        """What a reader must know of the samples; empty if every run held them out."""
        if not self.other_splits:
            return ""
        seeds = ", ".join(map(str, sorted(self.other_splits)))
        return (
            f"all models see the samples of data.split_seed={self.split_seed}; those trained with split_seed {seeds} "
            "held out others, so they may have trained on these"
        )

    def batches(self, source: Source, model: Any, samples: int) -> list[Batch]:
        """The first `samples` of the split under this source's data options, in smaller batches if they are long.

        Raises DataError if the data are missing or others than those of the run, or if their tokens have other ids.
        """
        split = self._split(source)
        count = min(samples, len(split))
        size = max(1, min(count, MAX_TOKEN_PAIRS // model.num_tokens() ** 2))
        return [split.__getitems__(list(range(i, min(i + size, count)))) for i in range(0, count, size)]

    def _split(self, source: Source) -> Any:
        options = {k: v for k, v in source.plan.data.options.items() if k not in ("batch_size", "limit_train", "root")}
        key = json.dumps(options, sort_keys=True, default=str)
        if key not in self._splits:
            self._splits[key] = self._read(source)
        data, split = self._splits[key]
        if source.folder is not None:
            self._check_same_data(source, source.folder, data)
            check_recorded_encoding(source.folder, data)
        return split

    def _read(self, source: Source) -> tuple[DataModule, Any]:
        here = {"split_seed": self.split_seed, "root": self.data_root, "download": False}  # analyses download nothing
        known = source.plan.data.options
        changed = {f"data.{name}": value for name, value in here.items() if name in known and value is not None}
        data = build_data(source.plan.with_options(changed))
        data.setup()
        validation, test = data.splits["val"], data.splits["test"]
        self.stage, split = ("val", validation) if len(validation) else ("test", test)
        if not len(split):
            raise DataError(f"{data.spec.name} has neither validation nor test samples")
        self.fingerprint = data.fingerprint()
        return data, split

    def _check_same_data(self, source: Source, folder: Path, data: DataModule) -> None:
        """Raises DataError for other samples than those of the run, or other data if it has a split of its own."""
        if source.plan.data.option("split_seed") == self.split_seed:
            changed = describe_splits([self.stage]) if self.stage in changed_splits(folder, data) else ""
        else:  # it is measured on the split of the first run
            summary = known_summary(folder)
            known = None if summary is None else summary.protocol.sha256
            changed = "the data" if known not in (None, self.fingerprint["sha256"]) else ""
            if not changed and self.stage in changed_splits(folder, data):
                self.other_splits.add(int(source.plan.data.option("split_seed")))
        if changed:
            raise DataError(f"{changed} differ from those that the run was trained with")


@dataclass
class Study:
    """The groups of models of an analysis, and the runs that were left out."""

    groups: list[Group]
    checkpoints: tuple[Checkpoint, ...]
    left_out: dict[str, str] = field(default_factory=dict)  # run -> reason

    def open_models(self, group: Group) -> Iterator[Opened]:
        """The models of a group at every checkpoint, in turn, with a progress bar.

        A source that cannot be opened is recorded in `left_out`. Untrained controls have only `init`, and none is
        opened where no run could be.
        """
        runs = [one for one in group.sources if one.folder is not None]
        console = PlainConsole(stderr=True)
        for source in track(
            group.sources, group.task, console=console, transient=True, disable=not console.is_terminal
        ):
            if source.folder is None and runs and all(one.name in self.left_out for one in runs):  # runs come first
                group.sources = runs
                return
            checkpoints = self.checkpoints if source.folder is not None else ("init",)
            try:
                models = [Opened(source, one, source.model(one), one == checkpoints[-1]) for one in checkpoints]
                group.batches(source, models[0].model, 1)
            except UNUSABLE as error:
                self.left_out[source.name] = _format_reason(error, source.name)
                continue
            yield from models


def open_study(options: InspectOptions) -> Study:
    """The runs below the folders of the options, in groups. Raises LabError if there are none."""
    collections = [collect(Path(folder).expanduser().resolve()) for folder in options.folders]
    study = Study([], options.checkpoints)
    for found in collections:
        study.left_out |= {str(found.folder / name): reason for name, reason in found.unreadable.items()}
        for sweep, count in Counter(job.sweep for job in found.missing).items():
            study.left_out[str(found.folder / sweep)] = f"{count} of its jobs left no run"
    runs = {run.folder: run for found in collections for run in found.runs}
    named = {found.folder for found in collections}  # a run folder named by the user counts whatever its status
    for table in tables(Collection(collections[0].folder, list(runs.values())), (), None):
        sources = list(_list_sources(table, named, study.left_out))
        if sources:
            study.groups.append(_build_group(table, sources, options))
    return study


def _list_sources(table: Table, named: set[Path], left_out: dict[str, str]) -> Iterator[Source]:
    for row in table.rows:
        for run in row.repeated:
            left_out[str(run.folder)] = "another run has the same options and seed"
        for run in row.runs:
            if run.status != "ok" and run.folder not in named:
                left_out[str(run.folder)] = f"its status is {run.status}{f': {run.error}' if run.error else ''}"
                continue
            try:
                yield Source(run.attention, row.label, check_config(read_config(run.folder)), run.folder)
            except UNUSABLE as error:
                left_out[str(run.folder)] = _format_reason(error, str(run.folder))


def _format_reason(error: Exception, name: str) -> str:
    """What an error says of a source, whose name is printed before it."""
    return str(error).removeprefix(f"{name} ") if isinstance(error, LabError) else f"{type(error).__name__}: {error}"


def _build_group(table: Table, sources: Sequence[Source], options: InspectOptions) -> Group:
    first = sources[0]
    controls = _list_controls(sources) if options.controls and "init" in options.checkpoints else ()
    # controls last, others in the order of the table
    ordered = sorted([*sources, *controls], key=lambda source: is_control(source.attention))
    split_seed = first.plan.data.option("split_seed")
    return Group(table.title, first.plan.names.task, ordered, split_seed, options.data_root)


def _list_controls(sources: Sequence[Source]) -> Iterator[Source]:
    """The controls that no run has, untrained: the runs of the first attention with each control in its place."""
    present = {source.attention for source in sources}
    first = {source.plan.seed: source for source in sources if source.label == sources[0].label}
    for name in controls():
        if name not in present:
            for source in first.values():  # one for each seed, because all are measured on one split
                yield Source(name, name, source.plan.with_options({"attention": load_option("attention", name)}))
