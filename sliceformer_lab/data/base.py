"""What every data module has: options, seeded splits and loaders whose passes can be replayed exactly."""

# No `from __future__ import annotations` in data modules: the schema of a configuration is read from annotations
# that a class inherits from another file, and as strings they would be looked up in the wrong one.

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, Self

import numpy as np
import torch
import torch.distributed as dist
from pydantic import Field
from pytorch_lightning import LightningDataModule
from pytorch_lightning.utilities.seed import isolate_rng
from torch.utils.data import DataLoader, Dataset, DistributedSampler

from sliceformer_lab.batch import Batch
from sliceformer_lab.data.spec import DataSpec
from sliceformer_lab.errors import DataError

Positive = Annotated[int, Field(ge=1)]
NonNegative = Annotated[int, Field(ge=0)]
Fraction = Annotated[float, Field(ge=0, lt=1)]
Stage = Literal["train", "val", "test"]


class Split(Dataset[Batch], ABC):
    """Training, validation or test examples. It makes whole batches: an augmentation can work on many at once."""

    pass_seed = 0  # of the pass under way; the loader sets it before its workers start

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def first(self, count: int) -> Self:
        """The same split cut to its first `count` examples."""

    @abstractmethod
    def batch(self, rows: list[int]) -> Batch:
        """The examples at `rows`; random choices come from the global generators of torch, numpy and Python."""

    def __getitems__(self, rows: list[int]) -> Batch:
        """`batch`, its random choices fixed by the pass and the first row: neither workers nor resuming change them."""
        seed = mixed_seed(self.pass_seed, rows[0])
        with isolate_rng(include_cuda=False):
            torch.default_generator.manual_seed(seed)  # torch.manual_seed would reach the GPU's dropout too
            np.random.seed(seed)
            random.seed(seed)
            return self.batch(rows)

    def __getitem__(self, row: int) -> Batch:
        return self.__getitems__([row])


class PassSampler(DistributedSampler[int]):
    """This process's share of a split, one order per pass.

    Training is shuffled alike in all processes and drops what does not divide among them; evaluation gives every
    example to exactly one process. Being a DistributedSampler, Lightning leaves it in place under DDP.
    """

    def __init__(self, split: Split, *, shuffle: bool, new_seed: Callable[[], int]) -> None:
        grouped = dist.is_available() and dist.is_initialized()
        world, rank = (dist.get_world_size(), dist.get_rank()) if grouped else (1, 0)
        super().__init__(split, num_replicas=world, rank=rank, shuffle=shuffle)
        self.size = len(split) - len(split) % world if shuffle else len(split)  # over all processes
        self.new_seed = new_seed

    def start_pass(self) -> int:
        """Draw the order of the next pass; returns its seed."""
        self.seed = self.new_seed()
        return self.seed

    def __iter__(self) -> Iterator[int]:
        order = torch.arange(len(self.dataset))  # type: ignore[arg-type]
        if self.shuffle:
            order = torch.randperm(len(order), generator=torch.Generator().manual_seed(self.seed))
        return iter(order[self.rank : self.size : self.num_replicas].tolist())

    def __len__(self) -> int:
        return len(range(self.rank, self.size, self.num_replicas))


class SeededLoader(DataLoader[Batch]):
    """A loader whose every pass is decided by one seed: order, augmentation and its workers' generators.

    Build it with a PassSampler. Workers must not persist: they would keep the first pass's seed.
    """

    dataset: Split

    def __iter__(self) -> Any:
        if isinstance(self.sampler, PassSampler):  # Lightning replaces it to overfit on fixed batches
            self.dataset.pass_seed = self.sampler.start_pass()
            self.generator.manual_seed(self.dataset.pass_seed)  # None would draw from dropout's generator
        return _with_plain_errors(super().__iter__())


@dataclass(kw_only=True, eq=False, repr=False)
class DataModule(LightningDataModule, ABC):
    """A data set for a run. Building one touches neither disk nor network; `spec` is known right after.

    The fields are the options of its YAML. `split_seed` picks the validation examples; the run's seed, set as
    `seed`, decides batches and augmentation only.
    """

    batch_size: Positive = 64
    eval_batch_size: Positive = 256
    num_workers: NonNegative = 0
    val_fraction: Fraction = 0.1
    split_seed: NonNegative = 0
    limit_train: Positive | None = None

    seed: int = field(init=False, default=0)
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

    def setup(self, stage: str | None = None) -> None:
        """Make the splits, once for all stages. Raises DataError."""
        del stage
        if not self.splits:
            self.splits = self.make_splits()
            if self.limit_train is not None:
                self.splits["train"] = self.splits["train"].first(self.limit_train)

    def train_dataloader(self) -> SeededLoader:
        return self._loader("train")

    def val_dataloader(self) -> SeededLoader | list[SeededLoader]:
        return self._loader("val") if len(self.splits["val"]) else []  # val_fraction=0: Lightning skips validation

    def test_dataloader(self) -> SeededLoader:
        return self._loader("test")

    def _loader(self, stage: Stage) -> SeededLoader:
        split, training = self.splits[stage], stage == "train"
        return SeededLoader(
            split,
            batch_size=self.batch_size if training else self.eval_batch_size,
            sampler=PassSampler(split, shuffle=training, new_seed=self._pass_seed),
            num_workers=self.num_workers,
            collate_fn=_already_a_batch,
            pin_memory=torch.cuda.is_available(),
            generator=torch.Generator(),
        )

    def _pass_seed(self) -> int:
        """A pass is named by the run's seed and the optimizer step it starts at, which a checkpoint restores."""
        return mixed_seed(self.seed, self.trainer.global_step if self.trainer else 0)


def mixed_seed(*parts: int) -> int:
    """One 32-bit seed from several numbers; neighbouring numbers give unrelated seeds."""
    return int(np.random.SeedSequence(parts).generate_state(1)[0])


def _already_a_batch(batch: Any) -> Any:
    return batch  # Split.__getitems__ made it


def _with_plain_errors(batches: Iterator[Batch]) -> Iterator[Batch]:
    """A worker hands its error on with the traceback inside the message; leave the sentence."""
    try:
        yield from batches
    except DataError as error:
        raise DataError(str(error).rpartition("DataError: ")[2].strip()) from None
