"""The bases of all data modules: shared options, splits that do not depend on the run's seed, seeded loaders."""

# No `from __future__ import annotations` in data modules: the schema of a configuration is read from annotations
# that a class inherits from another file, and as strings they would be looked up in the wrong one.

import math
from abc import ABC, abstractmethod
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np
import torch
from pytorch_lightning import LightningDataModule
from pytorch_lightning.trainer.states import TrainerFn

from sliceformer_lab.batch import Batch
from sliceformer_lab.config.option_types import Count, Fraction, Seed, Workers
from sliceformer_lab.data.input_files import read_file, read_inputs
from sliceformer_lab.data.loader import (
    LoaderPosition,
    PassSampler,
    SeededLoader,
    Split,
    evaluation_batch_size,
    mixed_seed,
    return_batch,
    start_worker,
)
from sliceformer_lab.data.spec import Choice, Content, ContentKind, DataSpec, Example, LoadPlan, NewInput
from sliceformer_lab.data.splits import STAGES, Stage
from sliceformer_lab.errors import DataError

MAX_LISTED = 20  # classes in a message
BATCHES_PER_EPOCH = 30  # that batch_size=null aims at


@dataclass(kw_only=True, eq=False, repr=False)
class DataModule(LightningDataModule, ABC):
    """A data set for a run. Constructing it touches neither disk nor network, and `spec` can be read right away.

    `plan` is what the run decides; the other fields are the options of the YAML file. `split_seed` picks the
    validation examples; `plan.seed` decides batches and augmentation only.
    """

    title: ClassVar[str]
    content_kind: ClassVar[ContentKind | None] = None  # what `examples` returns as content; None: nothing
    takes_new: ClassVar[bool] = False  # `encode_one` and `collate` make batches of new contents
    pool_share: ClassVar[float | None] = None  # of the training data: sorted by length at a time; None: no sorting

    train_sampler: ClassVar[type[PassSampler]] = PassSampler

    batch_sizes: ClassVar[tuple[int, int]] = (16, 64)  # smallest and largest that batch_size=null chooses

    plan: LoadPlan = field(default=LoadPlan(), kw_only=False)
    batch_size: Count | None = 64
    eval_batch_size: Count = 256
    num_workers: Workers = 0
    val_fraction: Fraction = 0.1
    split_seed: Seed = 0
    limit_train: Count | None = None
    limit_eval: Count | None = None

    splits: dict[Stage, Split] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        super().__init__()

    @property
    @abstractmethod
    def spec(self) -> DataSpec:
        """Sizes that the task and the model need."""

    @abstractmethod
    def make_splits(self) -> dict[Stage, Split]:
        """Read what `prepare_data` left on disk; training examples in an order shuffled by `split_seed`."""

    @abstractmethod
    def content_sha256(self) -> str:
        """sha256 of what was read."""

    @abstractmethod
    def is_official(self) -> tuple[bool | None, str]:
        """Whether what was read is the published set, None if there is none; and how this was checked."""

    def fingerprint(self) -> dict[str, Any]:
        """What exactly was read: name, official (bool or None), sha256 and a note. A changed copy gets its own name.

        Prepares the data. Raises DataError.
        """
        self.prepare_data()
        sha256 = self.content_sha256()
        official, note = self.is_official()
        name = f"{self.spec.name} (unofficial copy {sha256[:8]})" if official is False else self.spec.name
        return {"name": name, "official": official, "sha256": sha256, "note": note}

    def digests(self) -> dict[str, str]:
        """The identity of the data: a digest of each split, `Split.digest`. Prepares the data. Raises DataError."""
        return self._digests

    @cached_property
    def _digests(self) -> dict[str, str]:
        self.setup()
        names = self.class_names() or self.target_names()
        return {stage: split.digest(names) for stage, split in self.splits.items()}

    def state_dict(self) -> dict[str, Any]:
        """The part of the data that a checkpoint keeps: their digests, and the names of classes and targets."""
        return {"digests": self.digests(), "names": [list(self.class_names()), list(self.target_names())]}

    def check_encoding(self, state_dict: Mapping[str, Any]) -> None:
        """Raises DataError if a token has another id here than in the data whose `state_dict` a checkpoint keeps."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Checks the data of a checkpoint whose training goes on. Raises DataError."""
        self.check_encoding(state_dict)

    def class_names(self) -> tuple[str, ...]:
        """Names of the classes in the order of their numbers; empty where there are none. Raises DataError."""
        return tuple(map(str, range(self.spec.num_classes)))

    def target_names(self) -> tuple[str, ...]:
        """Names of the numbers or labels to predict; empty where a sample has a class instead."""
        return tuple(map(str, range(self.spec.num_targets)))

    @property
    def absent_target(self) -> float:
        """The value of a target that the trained model has and these data lack: NaN, for unknown."""
        return math.nan

    def training_targets(self) -> torch.Tensor:
        """The targets (n, ...) of all training examples. Needs the splits."""
        split = self.splits["train"]
        return split.targets_at(list(range(len(split))))

    def target_statistics(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Mean and standard deviation (T,) of the known training targets. Raises DataError if none is known."""
        self.setup()
        targets = self.training_targets().double()
        if unknown := [name for name, gaps in zip(self.target_names(), targets.isnan().T, strict=True) if gaps.all()]:
            raise DataError(f"{self.spec.name}: no training example has {', '.join(unknown)}; choose other targets")
        mean = targets.nanmean(dim=0)
        std = (targets - mean).square().nanmean(dim=0).sqrt()
        return mean.float(), torch.where(std > 0, std, 1.0).float()

    def places(self, stage: Stage, rows: Sequence[int]) -> list[str]:
        """Where the examples at `rows` of a split come from; the ids in predictions.npz are such rows."""
        self.setup()
        split = self.splits[stage]
        return [split.place(row) for row in rows]

    def examples(self, stage: Stage, rows: Sequence[int]) -> list[Example]:
        """The examples at `rows` of a split as a person would recognise them. Raises DataError."""
        places, split = self.places(stage, rows), self.splits[stage]
        return [Example(place, self.content(split.stored(row))) for place, row in zip(places, rows, strict=True)]

    def content(self, stored: Content | None) -> Content | None:
        """What a person sees of an example, from the form in which its split keeps it."""
        return stored

    @property
    def test_share(self) -> float:
        """Share of the training examples that is held out to test on, where the set has no test split of its own."""
        return 0.0

    def held_out_shares(self, published: Container[Stage]) -> dict[Stage, float]:
        """Share of the training examples for each split that is not `published`."""
        shares: dict[Stage, float] = {"test": self.test_share, "val": self.val_fraction}
        return {stage: share for stage, share in shares.items() if stage not in published}

    def read_inputs(self, path: Path, column: str | None) -> Iterator[NewInput]:
        """The new inputs in a file or folder; for a table, in `column` or the column that the run was trained on.

        Raises DataError if there are none. Only for data that take new contents, as `read_file`.
        """
        return read_inputs(path, cast(ContentKind, self.content_kind), column, self.read_file)

    def read_file(self, path: Path) -> np.ndarray:
        """A new picture or cloud from its file. Raises DataError."""
        return read_file(path, cast(ContentKind, self.content_kind))

    def encode_one(self, content: Content) -> Any:
        """A new content in a form that `collate` takes and that has a length. Raises DataError with a reason."""
        raise NotImplementedError

    def is_cut(self, content: Content, encoded: Any) -> bool:
        """Whether the model reads the beginning of a new content only."""
        del content, encoded
        return False

    def collate(self, encoded: Sequence[Any]) -> Batch:
        """A batch of contents that `encode_one` encoded, prepared as in evaluation; targets mean nothing."""
        raise NotImplementedError

    def save_encoder(self, folder: Path) -> None:
        """Write what `encode_one` needs besides the options into a run folder."""

    def about(self) -> str | None:
        """The source of a library's set, with its paper or page, as the library describes it."""
        return None

    def target_unit(self) -> str | None:
        """The unit of the numbers to predict, if the user has given one."""
        return None

    def remarks(self) -> list[str]:
        """What a reader of the results must know about the data, in sentences. Needs the splits."""
        return []

    def choices(self) -> list[Choice]:
        """The options that are null and follow from the data, with their reasons. Prepares the data.

        The data module uses these values anyway; a run prints and records them.
        """
        if self.batch_size is not None:
            return []
        self.setup()
        size, chosen = len(self.splits["train"]), self.train_batch_size
        return [Choice("data.batch_size", chosen, f"{size:,} training examples, {-(-size // chosen)} batches an epoch")]

    @property
    def step_factor(self) -> int:
        """How many times `optim.target_steps` these data need."""
        return 1

    @property
    def train_batch_size(self) -> int:
        """`batch_size`, or one that gives BATCHES_PER_EPOCH within `batch_sizes`. Needs the splits if it is null."""
        if self.batch_size is not None:
            return self.batch_size
        smallest, largest = self.batch_sizes
        wanted = max(1, len(self.splits["train"]) // BATCHES_PER_EPOCH)
        power: int = 2 ** round(math.log2(wanted))
        return min(max(power, smallest), largest)

    def setup(self, stage: str | None = None) -> None:
        """Prepare the data and make the splits, once for all stages. Raises DataError.

        Every process prepares, as the choices of a run need its splits before Lightning has started the others: the
        first one fills a cache or downloads, and those that wait for its lock find what it made.
        """
        del stage
        if not self.splits:
            self.prepare_data()
            splits = self.make_splits()
            self.splits = {stage: self._limit_split(stage, split) for stage, split in splits.items()}
            _ = self._trained_classes, self._trained_targets

    def _limit_split(self, stage: Stage, split: Split) -> Split:
        """The first training examples, which are shuffled; random evaluation examples, as files may go by class."""
        limit = self.limit_train if stage == "train" else self.limit_eval
        if limit is None or limit >= len(split):
            return split
        if stage == "train":
            return split.subset(np.arange(limit))
        generator = np.random.default_rng(mixed_seed(self.split_seed, STAGES.index(stage)))
        return split.subset(np.sort(generator.permutation(len(split))[:limit]))

    def sizes(self) -> dict[str, int]:
        """Number of training, validation and test examples, as num_train, num_val and num_test."""
        return {f"num_{stage}": len(split) for stage, split in self.splits.items()}

    def transfer_batch_to_device(self, batch: Batch, device: torch.device, dataloader_idx: int) -> Batch:
        """The batch on the device. On a GPU the copy does not wait; Lightning's own does, for batches of our kind."""
        del dataloader_idx
        if (trained := self._trained_classes) is not None:
            known = trained[batch.target.clamp(min=0)]
            batch = replace(batch, target=known.where(batch.target >= 0, batch.target))
        if (columns := self._trained_targets) is not None:
            target = batch.target.new_full((len(batch.target), len(self.plan.targets)), self.absent_target)
            target[:, columns] = batch.target
            batch = replace(batch, target=target)
        return batch.to(device, non_blocking=device.type == "cuda")

    @cached_property
    def _trained_classes(self) -> torch.Tensor | None:
        """The number of each class in the trained model that is scored; None if it is the same for all.

        Raises DataError for classes that the model does not have.
        """
        names, trained = self.class_names(), self.plan.classes
        same = not trained or names == trained[: len(names)]
        return None if same else self._places_among(trained, names, "classes")

    @cached_property
    def _trained_targets(self) -> torch.Tensor | None:
        """The column of each target in the trained model that is scored; None if its columns are the same.

        Raises DataError for targets that the model does not have.
        """
        names, trained = self.target_names(), self.plan.targets
        return None if not trained or names == trained else self._places_among(trained, names, "targets")

    def _places_among(self, trained: Sequence[str], names: Sequence[str], kind: str) -> torch.Tensor:
        """The place of each name among those of the trained model. Raises DataError for names that are not there."""
        if unknown := [name for name in names if name not in trained]:
            raise DataError(
                f"{self.spec.name} has the {kind} {', '.join(unknown)}, on which the model was not trained; it knows "
                f"{', '.join(trained[:MAX_LISTED])}{' and more' if len(trained) > MAX_LISTED else ''}"
            )
        return torch.tensor([trained.index(name) for name in names])

    def train_dataloader(self) -> SeededLoader:
        return self._loader("train", self.train_batch_size)

    @property
    def validation_stages(self) -> list[Stage]:
        """The splits that a validation scores, in the order of the validation loaders; test curves only in training."""
        fitting = self.trainer is not None and self.trainer.state.fn == TrainerFn.FITTING
        wanted: tuple[Stage, ...] = ("val", "test") if fitting and self.plan.score_test_each_epoch else ("val",)
        return [stage for stage in wanted if len(self.splits[stage])]

    def val_dataloader(self) -> list[SeededLoader]:
        """A loader for each of `validation_stages`. Lightning skips validation if there is none."""
        return [self._loader(stage, self.eval_batch_size) for stage in self.validation_stages]

    def test_dataloader(self) -> list[SeededLoader]:
        return [self._loader("test", self.eval_batch_size)] if len(self.splits["test"]) else []

    def _loader(self, stage: Stage, batch_size: int) -> SeededLoader:
        split, training = self.splits[stage], stage == "train"
        size = batch_size if training else evaluation_batch_size(len(split), batch_size)
        return SeededLoader(
            split,
            batch_size=size,
            sampler=(self.train_sampler if training else PassSampler)(
                split,
                shuffle=training,
                place=self._place if training else None,
                run_seed=self.plan.seed,
                batch_size=size,
                pool_share=self.pool_share,
                accumulate=self.plan.accumulate if training else 1,
                steps_per_epoch=self.plan.steps_between_scores if training else None,
            ),
            num_workers=self.num_workers,
            collate_fn=return_batch,
            worker_init_fn=start_worker,
            pin_memory=torch.cuda.is_available(),
            generator=torch.Generator(),  # without it, starting workers would draw from dropout's
        )

    def _place(self) -> LoaderPosition:
        """The run's current place, which a checkpoint restores."""
        if self.trainer is None or not self.trainer.training:
            return LoaderPosition(0, 0)
        done = self.trainer.fit_loop.batch_idx + 1  # batches of the current epoch
        return LoaderPosition(self.trainer.global_step - done // self.plan.accumulate, done)


@dataclass(kw_only=True, eq=False, repr=False)
class FolderData(DataModule):
    """A data set in the files of a folder."""

    root: str

    @property
    def path(self) -> Path:
        return Path(self.root).expanduser()
