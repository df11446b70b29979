"""What every data module has: its options, splits that the run's seed does not touch, and seeded loaders."""

# No `from __future__ import annotations` in data modules: the schema of a configuration is read from annotations
# that a class inherits from another file, and as strings they would be looked up in the wrong one.

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field
from pytorch_lightning import LightningDataModule
from pytorch_lightning.trainer.states import TrainerFn

from sliceformer_lab.data.loader import PassSampler, SeededLoader, Split, batch_as_it_is, mixed_seed
from sliceformer_lab.data.spec import DataSpec, LoadPlan

Positive = Annotated[int, Field(ge=1)]
NonNegative = Annotated[int, Field(ge=0)]
Fraction = Annotated[float, Field(ge=0, lt=1)]
Stage = Literal["train", "val", "test"]
STAGES: tuple[Stage, ...] = ("train", "val", "test")


@dataclass(kw_only=True, eq=False, repr=False)
class DataModule(LightningDataModule, ABC):
    """A data set for a run. Building one touches neither disk nor network; `spec` is known right after.

    `plan` is what the run decides; the other fields are the options of the YAML file. `split_seed` picks the
    validation examples; `plan.seed` decides batches and augmentation only.
    """

    plan: LoadPlan = field(default=LoadPlan(), kw_only=False)
    batch_size: Positive = 64
    eval_batch_size: Positive = 256
    num_workers: NonNegative = 0
    val_fraction: Fraction = 0.1
    split_seed: NonNegative = 0
    limit_train: Positive | None = None
    limit_eval: Positive | None = None

    bucketed: ClassVar[bool] = False  # batches of like lengths
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
    def fingerprint(self) -> dict[str, Any]:
        """What exactly was read: name, official (bool), sha256 and a note. A changed copy never has the set's name."""

    def identified(self, sha256: str, official: bool, note: str) -> dict[str, Any]:
        """The fingerprint of what these facts tell: a copy that is not the published set never has its name."""
        name = self.spec.name if official else f"{self.spec.name} (unofficial copy {sha256[:8]})"
        return {"name": name, "official": official, "sha256": sha256, "note": note}

    def setup(self, stage: str | None = None) -> None:
        """Make the splits, once for all stages. Raises DataError."""
        del stage
        if not self.splits:
            self.splits = self.make_splits()
            self.splits |= {stage: self._limited(stage, split) for stage, split in self.splits.items()}

    def _limited(self, stage: Stage, split: Split) -> Split:
        """The first examples to train on, which are shuffled already; any to score, where files may go by class."""
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

    def val_dataloader(self) -> list[SeededLoader]:  # Lightning skips what has no loader
        return [self._loader(stage, self.eval_batch_size) for stage in self.validation_stages]

    def test_dataloader(self) -> list[SeededLoader]:
        return [self._loader("test", self.eval_batch_size)] if len(self.splits["test"]) else []

    def _loader(self, stage: Stage, batch_size: int) -> SeededLoader:
        split, training = self.splits[stage], stage == "train"
        steps, accumulate = self.plan.steps_between_scores, self.plan.accumulate
        return SeededLoader(
            split,
            batch_size=batch_size,
            sampler=PassSampler(
                split,
                shuffle=training,
                step=self._step,
                new_seed=self._pass_seed,
                batch_size=batch_size,
                bucket=self.bucketed,
                accumulate=accumulate if training else 1,
                stretch=steps * accumulate if training and steps else None,
            ),
            num_workers=self.num_workers,
            collate_fn=batch_as_it_is,
            pin_memory=torch.cuda.is_available(),
            generator=torch.Generator(),
        )

    def _step(self) -> int:
        """The optimizer step that the run is at, which a checkpoint restores."""
        return self.trainer.global_step if self.trainer else 0

    def _pass_seed(self, step: int) -> int:
        """A pass is named by the run's seed and the step it starts at."""
        return mixed_seed(self.plan.seed, step)
