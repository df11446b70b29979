"""The models that an analysis looks at: those of runs, untrained controls beside them, and the samples for all."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from omegaconf.errors import OmegaConfBaseException
from pytorch_lightning import seed_everything
from pytorch_lightning.utilities.seed import isolate_rng
from rich.console import Console
from rich.progress import track

from sliceformer_lab.batch import Batch
from sliceformer_lab.commands.inspect.inspect_options import Checkpoint, InspectOptions
from sliceformer_lab.config.compose import load_option
from sliceformer_lab.errors import DataError, LabError, RunFolderError
from sliceformer_lab.runs.collect import Collection, RunRecord, collect
from sliceformer_lab.runs.controls import controls, is_control
from sliceformer_lab.runs.folder import checkpoint_file, load_weights, read_config, scored_checkpoint
from sliceformer_lab.runs.groups import Table, tables
from sliceformer_lab.training.build import build_data, build_task

UNUSABLE = (
    LabError,
    KeyError,
    TypeError,
    ValueError,
    OSError,
    OmegaConfBaseException,
)  # of a run that is no longer ours
MOST_PAIRS = 2**24  # of tokens in a forward pass, N^2 for each sample: what keeps maps of attention in memory


@dataclass(frozen=True)
class Source:
    """Where a model comes from: a run, or a configuration of a run with a control in place of its attention."""

    attention: str
    label: str  # the attention and the options in which its runs differ from most others
    config: Mapping[str, Any]
    folder: Path | None = None  # None: an untrained control

    @property
    def is_control(self) -> bool:
        """Whether its operator only tells what another does beyond it."""
        return is_control(self.attention)

    @property
    def seed(self) -> int:
        """Of weights and batches."""
        return int(self.config["seed"])

    @property
    def name(self) -> str:
        """The run's folder, or that there is none."""
        return f"untrained {self.label}, seed {self.seed}" if self.folder is None else str(self.folder)

    def model(self, checkpoint: Checkpoint) -> Any:
        """The task with these weights, in evaluation mode; the generators stay as they were.

        `init` builds it anew from the run's seed, as its training began; `best` is what the run's selection rule
        scores. Raises RunFolderError if there is no such checkpoint or it is of another model, ConfigError if the
        options are not those of this version.
        """
        with isolate_rng():
            seed_everything(self.seed, verbose=False)
            task = build_task(self.config, build_data(self.config).spec)
            if checkpoint == "init":
                task.initialise()
        if checkpoint != "init":
            load_weights(task, self._weights(checkpoint))
        return task.eval()

    def _weights(self, checkpoint: Checkpoint) -> Path:
        if self.folder is None:
            raise RunFolderError(f"{self.name} has no {checkpoint} checkpoint")
        if checkpoint == "best":
            return scored_checkpoint(self.config, self.folder)
        file = checkpoint_file(self.folder, checkpoint)
        if file is None:
            raise RunFolderError(f"{self.folder} has no checkpoints/{checkpoint}.ckpt")
        return file


@dataclass(frozen=True)
class Opened:
    """A model at one checkpoint."""

    source: Source
    checkpoint: Checkpoint
    model: Any

    @property
    def facts(self) -> dict[str, Any]:
        """The columns that tell its values from those of others."""
        return {
            "attention": self.source.label,
            "control": self.source.is_control,
            "checkpoint": self.checkpoint,
            "seed": self.source.seed,
            "run": "" if self.source.folder is None else self.source.folder.name,
        }


@dataclass
class Group:
    """Runs of one task, data and protocol, which see the same samples."""

    title: str
    task: str
    sources: list[Source]
    split_seed: int | None  # that of the first run, for all: another would make other validation samples
    data_root: str | None = None  # where the data lie now, if not where the runs read them
    stage: str = "val"  # the split that the samples are of
    fingerprint: dict[str, Any] = field(default_factory=dict)
    _splits: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """As part of a file's name."""
        return self.task

    def batches(self, source: Source, model: Any, samples: int) -> list[Batch]:
        """The first `samples` of the split as this source's data options present them, few at a time if they are long.

        Raises DataError if the data are not there.
        """
        split = self._split(source)
        count = min(samples, len(split))
        size = max(1, min(count, MOST_PAIRS // model.num_tokens() ** 2))
        return [split.__getitems__(list(range(i, min(i + size, count)))) for i in range(0, count, size)]

    def _split(self, source: Source) -> Any:
        options = {k: v for k, v in source.config["data"].items() if k not in ("batch_size", "limit_train", "root")}
        key = json.dumps(options, sort_keys=True, default=str)
        if key not in self._splits:
            self._splits[key] = self._read(source)
        return self._splits[key]

    def _read(self, source: Source) -> Any:
        node = dict(source.config["data"])
        if self.split_seed is not None and "split_seed" in node:
            node["split_seed"] = self.split_seed
        if self.data_root is not None and "root" in node:
            node["root"] = self.data_root
        if "download" in node:
            node["download"] = False  # gigabytes are no part of looking at a run
        data = build_data({**source.config, "data": node})
        data.prepare_data()
        data.setup()
        stages = [stage for stage in ("val", "test") if len(data.splits[stage])]
        if not stages:
            raise DataError(f"{data.spec.name} has neither validation nor test samples to look at")
        self.stage = stages[0]
        self.fingerprint = data.fingerprint()
        return data.splits[self.stage]


@dataclass
class Study:
    """Everything that an analysis may look at, and what could not be opened."""

    groups: list[Group]
    checkpoints: tuple[Checkpoint, ...]
    left_out: dict[str, str] = field(default_factory=dict)  # run: why

    def opened(self, group: Group, sources: Sequence[Source] | None = None) -> Iterator[Opened]:
        """The models of `sources` (None: of all the group has) at every checkpoint, in turn, with a progress bar.

        A source that cannot be opened is left out altogether, and noted with the reason. Untrained controls have
        `init` only.
        """
        console = Console(stderr=True)
        chosen = group.sources if sources is None else sources
        for source in track(chosen, group.task, console=console, transient=True, disable=not console.is_terminal):
            wanted = self.checkpoints if source.folder is not None else ("init",)
            try:
                models = [Opened(source, checkpoint, source.model(checkpoint)) for checkpoint in wanted]
                group.batches(source, models[0].model, 1)
            except UNUSABLE as error:
                self.left_out[source.name] = _told(error)
                continue
            yield from models


def open_study(options: InspectOptions) -> Study:
    """The runs that the options name. Raises LabError if there is none."""
    if options.runs is None:
        return Study([], options.checkpoints)
    collections = [collect(Path(folder).expanduser().resolve()) for folder in options.folders]
    study = Study([], options.checkpoints)
    for found in collections:
        study.left_out |= {str(found.folder / name): reason for name, reason in found.unreadable.items()}
        for sweep, count in Counter(job.sweep for job in found.missing).items():
            study.left_out[str(found.folder / sweep)] = f"{count} of its jobs have left nothing"
    runs = {run.folder: run for found in collections for run in found.runs}
    named = {found.folder for found in collections}  # a run that is named itself is looked at however it ended
    for table in tables(Collection(collections[0].folder, list(runs.values())), (), None):
        sources = list(_sources(table, named, study.left_out))
        if sources:
            study.groups.append(_group(table, sources, options))
    return study


def _sources(table: Table, named: set[Path], left_out: dict[str, str]) -> Iterator[Source]:
    for row in table.rows:
        for run in row.repeated:
            left_out[str(run.folder)] = "another run has the same options and seed"
        for run in row.runs:
            if run.status != "ok" and run.folder not in named:
                left_out[str(run.folder)] = _how_it_ended(run)
                continue
            try:
                yield Source(run.attention, row.label, read_config(run.folder), run.folder)
            except UNUSABLE as error:
                left_out[str(run.folder)] = _told(error)


def _told(error: Exception) -> str:
    return str(error) if isinstance(error, LabError) else f"{type(error).__name__}: {error}"


def _how_it_ended(run: RunRecord) -> str:
    error = str(run.summary.get("error") or "").splitlines()
    return f"its status is {run.status}" + (f": {error[0]}" if error else "")


def _group(table: Table, sources: Sequence[Source], options: InspectOptions) -> Group:
    first = sources[0]
    controls = _controls(sources) if options.controls and "init" in options.checkpoints else ()
    ordered = sorted([*sources, *controls], key=lambda source: source.is_control)  # controls last, else as in the table
    split_seed = first.config["data"].get("split_seed")
    return Group(table.title, first.config["names"]["task"], ordered, split_seed, options.data_root)


def _controls(sources: Sequence[Source]) -> Iterator[Source]:
    """Untrained controls where no run has them: those of the first attention's runs with another operator."""
    present = {source.attention for source in sources}
    alike = [source for source in sources if source.label == sources[0].label]
    for name in controls():
        if name not in present:
            for source in alike:
                config = {**source.config, "attention": load_option("attention", name)}
                yield Source(name, name, config)
