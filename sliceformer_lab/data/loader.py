"""Loaders whose passes can be replayed exactly: one seed decides order and augmentation, whatever the workers."""

from __future__ import annotations

import atexit
import hashlib
import json
import multiprocessing
import random
import signal
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count, islice
from typing import Any, NamedTuple, Self

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, DistributedSampler

from sliceformer_lab.batch import Batch
from sliceformer_lab.data.spec import Content
from sliceformer_lab.errors import ConfigError, DataError, DataWorkerError
from sliceformer_lab.runs.processes import STOP_SIGNALS, end_with_parent, ignore_stop_signals


class Split(Dataset[Batch], ABC):
    """Training, validation or test examples. It makes whole batches, so that images are augmented together."""

    pass_seed = 0  # of the current pass; the loader sets it before its workers start

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def subset(self, rows: np.ndarray) -> Self:
        """The same split with only the examples at `rows` (n,)."""

    def lengths(self) -> np.ndarray | None:
        """Number of tokens of every example (n,), by which batches are bucketed; None if all have the same."""
        return None

    def place(self, row: int) -> str:
        """Where an example comes from: its file, or file and line."""
        return f"example {row}"

    def stored(self, row: int) -> Content | None:
        """The example without augmentation, in the form in which the split keeps it; None if that says nothing."""
        del row
        return None

    def contents(self) -> Iterator[bytes]:
        """The content of each example without its target and augmentation, for `digest`."""
        for row in range(len(self)):
            found = self.stored(row)
            array = self[row].inputs.numpy() if found is None else found
            yield array.encode() if isinstance(array, str) else f"{array.dtype}{array.shape}".encode() + array.tobytes()

    def digest(self, names: Sequence[str]) -> str:
        """sha256 of the examples in their order, with targets. Classes count by their names, not by their numbers."""
        found = hashlib.sha256()
        for content in self.contents():
            found.update(len(content).to_bytes(8, "little") + content)
        for first in range(0, len(self), 256):  # targets may be masks
            targets = self.targets_at(list(range(first, min(first + 256, len(self)))))
            if names and targets.ndim == 1 and not targets.is_floating_point():
                found.update(json.dumps([names[target] for target in targets.tolist()]).encode())
            else:
                found.update(json.dumps([*names, *targets.shape]).encode() + targets.numpy().tobytes())
        return found.hexdigest()

    @abstractmethod
    def batch(self, rows: list[int]) -> Batch:
        """The examples at `rows`; random choices come from the global generators of torch, numpy and Python."""

    def targets_at(self, rows: list[int]) -> Tensor:
        """The targets (n, ...) of the examples at `rows`."""
        return self.__getitems__(rows).target

    def __getitems__(self, rows: list[int]) -> Batch:
        """`batch`, with random choices that depend only on the pass and the first row, not on workers or resuming."""
        with _seeded_generators(mixed_seed(self.pass_seed, rows[0])):
            return self.batch(rows)

    def __getitem__(self, row: int) -> Batch:
        return self.__getitems__([row])


class LoaderPosition(NamedTuple):
    """A place in the training: the optimizer step at which the epoch started, and the batches taken since."""

    first_step: int
    batches: int


class PassSampler(DistributedSampler[int]):
    """This process's share of the examples of a split, in one order per pass.

    In training, all processes shuffle alike and drop the examples that do not divide among them; in evaluation, every
    example goes to exactly one process. As a DistributedSampler, it is kept by Lightning under DDP.
    `place` says where a training is: an epoch that was interrupted goes on after its last batch. `run_seed` and the
    optimizer step at which a pass starts give its order. With `steps_per_epoch`, an epoch of Lightning is this number
    of steps instead of a pass: it continues the pass that is under way and takes as many more passes as it needs.
    Passes then contain whole steps only, as they also do if several batches `accumulate` to a step.
    With a `pool_share`, the examples of a batch have similar lengths: training sorts a pool of consecutive examples by
    length, cuts it into batches and shuffles the batches; evaluation sorts all examples. A pool holds at most this
    share of the data and at most POOL batches. A pool of all data would put the same examples together in every pass.
    """

    POOL = 50  # batches; a larger pool needs less padding and shuffles less

    def __init__(
        self,
        split: Split,
        *,
        shuffle: bool,
        place: Callable[[], LoaderPosition] | None,
        run_seed: int,
        batch_size: int = 1,
        pool_share: float | None = None,
        accumulate: int = 1,
        steps_per_epoch: int | None = None,
    ) -> None:
        rank, world = rank_and_world_size()
        super().__init__(split, num_replicas=world, rank=rank, shuffle=shuffle)
        self.place, self.run_seed, self.batch_size = place, run_seed, batch_size
        self.pool_share, self.lengths = pool_share, None if pool_share is None else split.lengths()
        self.group = batch_size * world  # examples of one batch in every process
        self.per_step = self.group * accumulate
        unit = world if steps_per_epoch is None and accumulate == 1 else self.per_step
        self.size = len(split) - len(split) % unit if shuffle else len(split)  # over all processes
        if shuffle and not self.size:
            raise ConfigError(
                f"{len(split)} training examples do not fill a step of {self.per_step} (data.batch_size={batch_size}, "
                f"optim.accumulate={accumulate}, {world} processes); make one of these smaller"
            )
        self.steps_per_epoch, self.first = steps_per_epoch, LoaderPosition(0, 0)
        epoch = None if steps_per_epoch is None else steps_per_epoch * accumulate * batch_size
        self.share = len(range(rank, self.size, world)) if epoch is None else epoch  # examples of this process

    def start_pass(self) -> int:
        """Fix the order of the next examples; returns a seed for all other random choices of the pass."""
        self.first = self.place() if self.place else LoaderPosition(0, 0)
        return mixed_seed(self.run_seed, self.first.first_step)

    def __iter__(self) -> Iterator[int]:
        taken = self.first.batches * self.batch_size
        if self.steps_per_epoch is None:
            return iter(self._pass(self.first.first_step)[taken:])
        return islice(self._passes_from_first_step(), taken, self.share)

    def _passes_from_first_step(self) -> Iterator[int]:
        """This process's examples from the epoch's first step on, pass after pass."""
        steps_per_pass = self.size // self.per_step
        done = self.first.first_step % steps_per_pass
        for first in count(self.first.first_step - done, steps_per_pass):
            yield from self._pass(first)[done * self.per_step // self.num_replicas :]
            done = 0

    def _pass(self, first_step: int) -> list[int]:
        generator = torch.Generator().manual_seed(mixed_seed(self.run_seed, first_step))
        total = len(self.dataset)  # type: ignore[arg-type]
        order = torch.randperm(total, generator=generator)[: self.size] if self.shuffle else torch.arange(total)
        if self.lengths is not None and self.pool_share is not None:
            order = self._sort_by_length(order, self.lengths, self.pool_share, generator)
        rows: list[int] = order[self.rank : self.size : self.num_replicas].tolist()
        return rows

    def _sort_by_length(self, order: Tensor, lengths: np.ndarray, share: float, generator: torch.Generator) -> Tensor:
        """The same examples with similar lengths next to each other; an incomplete batch stays the last."""
        if not self.shuffle:
            return order[np.argsort(lengths[order], kind="stable")]
        largest = len(order) if share == 1 else self.group * max(1, int(share * len(order) / self.group))
        pools = torch.split(order, min(self.group * self.POOL, largest))
        batches = torch.split(torch.cat([pool[np.argsort(lengths[pool], kind="stable")] for pool in pools]), self.group)
        num_full = len(order) // self.group
        mixed = [batches[i] for i in torch.randperm(num_full, generator=generator).tolist()]
        return torch.cat([*mixed, *batches[num_full:]])

    def __len__(self) -> int:
        return self.share


class SeededLoader(DataLoader[Batch]):
    """A loader with one seed per pass, which decides order and augmentation.

    Construct it with a PassSampler. Workers must not persist: they would keep the seed of the first pass.
    """

    dataset: Split

    def __iter__(self) -> Any:
        """The batches of a pass. Raises DataError, also for errors in a worker.

        The pass is seeded when its first batch is requested, because Lightning makes the iterator of a resumed run
        before it restores the step.
        """
        if isinstance(self.sampler, PassSampler):  # Lightning replaces it to overfit on fixed batches
            self.dataset.pass_seed = self.sampler.start_pass()
        try:
            with _unchanged_handler(), _signals_wait():
                batches = super().__iter__()
            yield from batches
        except DataError as error:  # the message from a worker includes its traceback
            raise DataError(str(error).rpartition("DataError: ")[2].strip()) from None
        except (RuntimeError, OSError, EOFError) as error:
            if not _is_lost_worker(error):
                raise
            raise DataWorkerError(
                "a data worker was killed, most often because memory ran out; "
                f"try fewer than data.num_workers={self.num_workers}, 0 to read in the main process, or smaller batches"
            ) from error


def rank_and_world_size() -> tuple[int, int]:
    """Number of this process and of all processes that train together."""
    grouped = dist.is_available() and dist.is_initialized()
    return (dist.get_rank(), dist.get_world_size()) if grouped else (0, 1)


def evaluation_batch_size(examples: int, batch_size: int) -> int:
    """The batch size near the wanted one with which all processes have as many batches, whose shares differ by one.

    A process with one batch more would wait for the others for ever, where a batch makes them talk to each other.
    Raises ConfigError if a process would have no example.
    """
    processes = rank_and_world_size()[1]
    fewest, more = divmod(examples, processes)
    if not more:
        return batch_size
    if not fewest:
        raise ConfigError(f"{processes} processes cannot share {examples} examples; use trainer.devices={examples}")
    sizes: list[int] = [*range(batch_size, 1, -1), *range(batch_size + 1, fewest + 2)]
    return next(size for size in sizes if fewest % size)


def mixed_seed(*parts: int) -> int:
    """One 32-bit seed from several numbers; neighbouring numbers give unrelated seeds."""
    return int(np.random.SeedSequence(parts).generate_state(1)[0])


def start_worker(worker: int) -> None:
    """Leaves it to the main process to end a data worker: a signal to the whole group would end it within a batch."""
    del worker
    ignore_stop_signals()
    if hasattr(signal, "pthread_sigmask"):  # not on Windows
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)  # blocked by `_signals_wait`
    end_with_parent()


@contextmanager
def _signals_wait() -> Iterator[None]:
    """Delivers a stop signal after the block. Workers that start in it inherit this, until they ignore the signals.

    The mask is that of this thread alone. If the system gives a signal to another thread, such as a logger's, Python
    still calls the handler in the main thread: so the handlers wait, too.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    received: list[int] = []
    is_main = threading.current_thread() is threading.main_thread()  # no other thread may set a handler
    handlers = {number: handler for number in STOP_SIGNALS if is_main and callable(handler := signal.getsignal(number))}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    for number in handlers:
        signal.signal(number, lambda caught, _: received.append(caught))
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        for caught in received:
            signal.raise_signal(caught)


@contextmanager
def _unchanged_handler() -> Iterator[None]:
    """Restores the handler of SIGCHLD, which torch replaces when workers start.

    Torch's handler raises an error at any place in the main process when a worker was killed, in a lock or a callback
    too. Without it, the loader finds the dead worker itself when it waits for a batch, after five seconds at most.
    """
    number = getattr(signal, "SIGCHLD", None)  # not on Windows
    before = None if number is None else signal.getsignal(number)
    yield
    if number is not None and signal.getsignal(number) is not before:
        signal.signal(number, before)


def _is_lost_worker(error: Exception) -> bool:
    """Whether a loader raised this error because a worker ended, and not because of the examples that it read."""
    raised_in_worker = str(error).startswith("Caught ")
    return not raised_in_worker and ("DataLoader worker" in str(error) or isinstance(error, ConnectionError | EOFError))


@atexit.register
def _kill_workers() -> None:
    """Kills the data workers that are left. multiprocessing would wait for them forever, as they ignore SIGTERM."""
    for process in multiprocessing.active_children():
        if process.daemon:
            process.kill()


def return_batch(batch: Any) -> Any:
    """The collate function of a SeededLoader, because a split makes whole batches."""
    return batch


@contextmanager
def _seeded_generators(seed: int) -> Iterator[None]:
    """Seeds the generators of torch's CPU, numpy and Python, and restores their states at the end."""
    numpy_state, python_state = np.random.get_state(), random.getstate()
    try:
        with torch.random.fork_rng(devices=()):
            torch.default_generator.manual_seed(seed)  # torch.manual_seed would also seed the GPU's dropout
            np.random.seed(seed)
            random.seed(seed)
            yield
    finally:
        np.random.set_state(numpy_state)
        random.setstate(python_state)
