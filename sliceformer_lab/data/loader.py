"""Loaders whose passes can be replayed exactly: order and augmentation follow from one seed, not from the workers."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, Self

import numpy as np
import torch
import torch.distributed as dist
from pytorch_lightning.utilities.seed import isolate_rng
from torch.utils.data import DataLoader, Dataset, DistributedSampler

from sliceformer_lab.batch import Batch
from sliceformer_lab.errors import DataError


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
        """A pass, seeded when its first batch is asked for: Lightning makes the iterator of a resumed run before it
        has restored the step."""
        if isinstance(self.sampler, PassSampler):  # Lightning replaces it to overfit on fixed batches
            self.dataset.pass_seed = self.sampler.start_pass()
            self.generator.manual_seed(self.dataset.pass_seed)  # None would draw from dropout's generator
        try:
            yield from super().__iter__()
        except DataError as error:  # a worker hands its error on with the traceback inside the message
            raise DataError(str(error).rpartition("DataError: ")[2].strip()) from None


def mixed_seed(*parts: int) -> int:
    """One 32-bit seed from several numbers; neighbouring numbers give unrelated seeds."""
    return int(np.random.SeedSequence(parts).generate_state(1)[0])


def batch_as_it_is(batch: Any) -> Any:
    """The collate function of a SeededLoader, as a split makes whole batches."""
    return batch
