"""Loaders whose passes can be replayed exactly: order and augmentation follow from one seed, not from the workers."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from itertools import count, islice
from typing import Any, Self

import numpy as np
import torch
import torch.distributed as dist
from pytorch_lightning.utilities.seed import isolate_rng
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, DistributedSampler

from sliceformer_lab.batch import Batch
from sliceformer_lab.errors import DataError


class Split(Dataset[Batch], ABC):
    """Training, validation or test examples. It makes whole batches: an augmentation can work on many at once."""

    pass_seed = 0  # of the pass under way; the loader sets it before its workers start

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def subset(self, rows: np.ndarray) -> Self:
        """The same split cut to the examples at `rows` (n,)."""

    def lengths(self) -> np.ndarray | None:
        """Tokens of every example (n,), where they differ: batches of like lengths need little padding."""
        return None

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
    The order of a training pass follows from the optimizer step it starts at, by `new_seed`. With `stretch`, what
    Lightning calls an epoch is so many batches, not a pass: it goes on in the pass under way at `step`, and through as
    many more as it takes. These passes, and all where several batches `accumulate` to a step, have whole steps only.
    With `bucket`, the examples of a batch have like lengths: those of POOL batches in a row are sorted by length, cut
    into batches, and the batches shuffled again; evaluation sorts all of them.
    """

    POOL = 50  # batches; more pads less and shuffles less

    def __init__(
        self,
        split: Split,
        *,
        shuffle: bool,
        step: Callable[[], int],
        new_seed: Callable[[int], int],
        batch_size: int = 1,
        bucket: bool = False,
        accumulate: int = 1,
        stretch: int | None = None,
    ) -> None:
        grouped = dist.is_available() and dist.is_initialized()
        world, rank = (dist.get_world_size(), dist.get_rank()) if grouped else (1, 0)
        super().__init__(split, num_replicas=world, rank=rank, shuffle=shuffle)
        self.step, self.new_seed = step, new_seed
        self.lengths = split.lengths() if bucket else None
        self.group = batch_size * world  # examples that the processes take side by side
        self.per_step = self.group * accumulate
        unit = world if stretch is None and accumulate == 1 else self.per_step
        self.size = len(split) - len(split) % unit if shuffle else len(split)  # over all processes
        if stretch is not None and not self.size:
            raise DataError(
                f"{len(split)} training examples do not fill a step of {self.per_step} (data.batch_size={batch_size}, "
                f"optim.accumulate={accumulate}, {world} processes); make one of these smaller"
            )
        self.stretch, self.started_at = stretch, 0
        self.share = batch_size * stretch if stretch else len(range(rank, self.size, world))  # of this process

    def start_pass(self) -> int:
        """Settle the order of the next examples; returns a seed for what else is random about them."""
        self.started_at = self.step()
        return self.new_seed(self.started_at)

    def __iter__(self) -> Iterator[int]:
        return iter(self._pass(self.started_at)) if self.stretch is None else islice(self._onward(), self.share)

    def _onward(self) -> Iterator[int]:
        """This process's examples from the step `started_at` on, pass after pass."""
        steps_per_pass = self.size // self.per_step
        done = self.started_at % steps_per_pass
        for first in count(self.started_at - done, steps_per_pass):
            yield from self._pass(first)[done * self.per_step // self.num_replicas :]
            done = 0

    def _pass(self, first_step: int) -> list[int]:
        generator = torch.Generator().manual_seed(self.new_seed(first_step))
        total = len(self.dataset)  # type: ignore[arg-type]
        order = torch.randperm(total, generator=generator)[: self.size] if self.shuffle else torch.arange(total)
        if self.lengths is not None:
            order = self._bucketed(order, self.lengths, generator)
        part: list[int] = order[self.rank : self.size : self.num_replicas].tolist()
        return part

    def _bucketed(self, order: Tensor, lengths: np.ndarray, generator: torch.Generator) -> Tensor:
        """The same examples, those of like lengths next to each other; a batch that is not full stays the last."""
        pool = self.group * self.POOL if self.shuffle else len(order)
        by_length = [part[np.argsort(lengths[part], kind="stable")] for part in torch.split(order, max(1, pool))]
        batches = torch.split(torch.cat(by_length), self.group) if by_length else ()
        if not self.shuffle or not batches:
            return torch.cat(by_length)
        full = [batch for batch in batches if len(batch) == self.group]
        mixed = [full[i] for i in torch.randperm(len(full), generator=generator).tolist()]
        return torch.cat([*mixed, *(batch for batch in batches if len(batch) < self.group)])

    def __len__(self) -> int:
        return self.share


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
        except RuntimeError as error:
            if "DataLoader worker" not in str(error):
                raise
            raise DataError(
                f"a data worker was killed ({str(error).splitlines()[0]}), most often for want of memory; "
                f"try fewer than data.num_workers={self.num_workers}, 0 to read in the main process, or smaller batches"
            ) from error


def mixed_seed(*parts: int) -> int:
    """One 32-bit seed from several numbers; neighbouring numbers give unrelated seeds."""
    return int(np.random.SeedSequence(parts).generate_state(1)[0])


def batch_as_it_is(batch: Any) -> Any:
    """The collate function of a SeededLoader, as a split makes whole batches."""
    return batch
