"""The bases of all data modules: options that they share, splits apart from the run's seed, and seeded loaders."""

# No `from __future__ import annotations` in data modules: the schema of a configuration is read from annotations
# that a class inherits from another file, and as strings they would be looked up in the wrong one.

from abc import ABC, abstractmethod
from collections.abc import Container
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from pytorch_lightning import LightningDataModule
from pytorch_lightning.trainer.states import TrainerFn

from sliceformer_lab.config.option_types import Count, Fraction, Natural
from sliceformer_lab.data.cache import content_digest
from sliceformer_lab.data.loader import PassSampler, SeededLoader, Split, mixed_seed, return_batch
from sliceformer_lab.data.spec import DataSpec, LoadPlan
from sliceformer_lab.data.splits import STAGES, Stage


@dataclass(kw_only=True, eq=False, repr=False)
class DataModule(LightningDataModule, ABC):
    """A data set for a run. Constructing it touches neither disk nor network, and `spec` can be read right away.

    `plan` is what the run decides; the other fields are the options of the YAML file. `split_seed` picks the
    validation examples; `plan.seed` decides batches and augmentation only.
    """

    title: ClassVar[str]
    pool_share: ClassVar[float | None] = None  # of the training data: sorted by length at a time; None: no sorting

    plan: LoadPlan = field(default=LoadPlan(), kw_only=False)
    batch_size: Count = 64
    eval_batch_size: Count = 256
    num_workers: Natural = 0
    val_fraction: Fraction = 0.1
    split_seed: Natural = 0
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
    def is_official(self) -> tuple[bool, str]:
        """Whether what was read is the published set, and how this was checked."""

    def fingerprint(self) -> dict[str, Any]:
        """What exactly was read: name, official (bool), sha256 and a note. A changed copy gets a name of its own."""
        sha256 = self.content_sha256()
        official, note = self.is_official()
        name = self.spec.name if official else f"{self.spec.name} (unofficial copy {sha256[:8]})"
        return {"name": name, "official": official, "sha256": sha256, "note": note}

    @property
    def test_share(self) -> float:
        """Share of the training examples that is held out to test on, where the set has no test split of its own."""
        return 0.0

    def held_out_shares(self, published: Container[Stage]) -> dict[Stage, float]:
        """Share of the training examples for each split that is not `published`."""
        shares: dict[Stage, float] = {"test": self.test_share, "val": self.val_fraction}
        return {stage: share for stage, share in shares.items() if stage not in published}

    def setup(self, stage: str | None = None) -> None:
        """Make the splits, once for all stages. Raises DataError."""
        del stage
        if not self.splits:
            splits = self.make_splits()
            self.splits = {stage: self._limited(stage, split) for stage, split in splits.items()}

    def _limited(self, stage: Stage, split: Split) -> Split:
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

    def train_dataloader(self) -> SeededLoader:
        return self._loader("train", self.batch_size)

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
        return SeededLoader(
            split,
            batch_size=batch_size,
            sampler=PassSampler(
                split,
                shuffle=training,
                step=self._step,
                new_seed=self._pass_seed,
                batch_size=batch_size,
                pool_share=self.pool_share,
                accumulate=self.plan.accumulate if training else 1,
                steps_per_epoch=self.plan.steps_between_scores if training else None,
            ),
            num_workers=self.num_workers,
            collate_fn=return_batch,
            pin_memory=torch.cuda.is_available(),
            generator=torch.Generator(),
        )

    def _step(self) -> int:
        """The current optimizer step of the run, which a checkpoint restores."""
        return self.trainer.global_step if self.trainer else 0

    def _pass_seed(self, step: int) -> int:
        """The seed of the training pass that starts at an optimizer step."""
        return mixed_seed(self.plan.seed, step)


@dataclass(kw_only=True, eq=False, repr=False)
class CachedData(DataModule):
    """A data set that is read once and then kept in a cache folder, in files that all processes map into memory."""

    root: str

    @property
    def path(self) -> Path:
        """The folder that `root` names."""
        return Path(self.root).expanduser()

    @abstractmethod
    def prepare(self) -> Path:
        """The cache folder, filled unless an earlier run has filled it. Raises DataError."""

    @cached_property
    def _folder(self) -> Path:
        return self.prepare()

    def folder(self) -> Path:
        """The cache folder, filled at the first call. Raises DataError."""
        return self._folder

    def prepare_data(self) -> None:
        """Fill the cache folder. Raises DataError."""
        self.folder()

    def content_sha256(self) -> str:
        return content_digest(self.folder())
