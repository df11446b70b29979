"""A probe as a data set: an endless stream of training sequences, and fixed draws for validation and test."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, ClassVar, Literal, Self, cast

import numpy as np
import torch

from sliceformer_lab.batch import Batch
from sliceformer_lab.config.option_types import Count, Seed
from sliceformer_lab.data.base import DataModule
from sliceformer_lab.data.loader import PassSampler, Split
from sliceformer_lab.data.probes.base import Level, Probe, Sizes
from sliceformer_lab.data.probes.generators import PROBES
from sliceformer_lab.data.spec import DataSpec
from sliceformer_lab.data.splits import Stage

Name = Literal["count", "recall", "back", "rank", "select", "hist", "words"]
VAL, TEST, LONGER, TRAIN = range(4)  # the kinds of draws, each with seeds of its own


class StreamSampler(PassSampler):
    """Numbers of the examples of an endless stream: the optimizer step decides them, whatever the epochs.

    All processes together take the next examples; each takes its share. An interrupted epoch goes on.
    """

    def __iter__(self) -> Iterator[int]:
        place, world = self.first, self.num_replicas
        first = place.first_step * self.per_step + place.batches * self.group + self.rank
        left = self.share - place.batches * self.batch_size
        return iter(range(first, first + left * world, world))


@dataclass
class ProbeStream(Split):
    """Sequences that are drawn when a batch is asked for. A batch depends on the seeds and its first row only."""

    probe: Probe
    generator_seed: int
    run_seed: int
    length: int  # of a pass, which only optim.epochs and optim.max_steps count in

    def __len__(self) -> int:
        return self.length

    def subset(self, rows: np.ndarray) -> Self:
        return replace(self, length=len(rows))

    def place(self, row: int) -> str:
        return f"training sequence {row}"

    def batch(self, rows: list[int]) -> Batch:
        rng = np.random.default_rng((self.generator_seed, TRAIN, self.run_seed, rows[0]))
        inputs, targets = self.probe.draw(rng, len(rows))
        return Batch(torch.from_numpy(inputs), torch.from_numpy(targets), torch.tensor(rows))

    def digest(self, names: Sequence[str]) -> str:
        """Of the first sequences of run seed 0: the runs of all seeds draw from one generator."""
        return Split.digest(replace(self, run_seed=0, length=min(self.length, 16)), names)

    def __getitems__(self, rows: list[int]) -> Batch:
        return self.batch(rows)  # reads no global generator, so that none must be seeded and restored


@dataclass
class FixedDraw(Split):
    """Sequences that were drawn once. Inputs (n, N), (n, N, 2) or (n, N, 1), targets (n, N)."""

    inputs: np.ndarray
    targets: np.ndarray
    name: str  # of the draw

    def __len__(self) -> int:
        return len(self.targets)

    def subset(self, rows: np.ndarray) -> Self:
        return replace(self, inputs=self.inputs[rows], targets=self.targets[rows])

    def place(self, row: int) -> str:
        return f"{self.name} sequence {row}"

    def batch(self, rows: list[int]) -> Batch:
        return Batch(torch.from_numpy(self.inputs[rows]), torch.from_numpy(self.targets[rows]), torch.tensor(rows))

    def __getitems__(self, rows: list[int]) -> Batch:
        return self.batch(rows)


@dataclass(kw_only=True, eq=False, repr=False)
class ProbeData(DataModule):
    """Sequences of a probe. `level` fills the sizes that are None; a probe refuses sizes that it does not have.

    Training sequences depend on `generator_seed`, the run's seed and the step; validation and test sequences depend on
    `generator_seed` only. `test_lengths` are further numbers of tokens for which a trained model is scored, with all
    other sizes unchanged. The model is built for the longest. Raises ValueError for impossible sizes.
    """

    title = "probe"
    train_sampler: ClassVar[type[PassSampler]] = StreamSampler

    probe: Name = "recall"
    level: Level = "standard"
    max_len: Count | None = None
    vocabulary: Count | None = None
    pairs: Count | None = None
    items: Count | None = None
    distance: Count | None = None
    neighbours: bool | None = None
    num_val: Count = 256
    num_test: Count = 4096
    test_lengths: tuple[Count, ...] | None = None
    generator_seed: Seed = 0
    batch_size: Count = 32
    eval_batch_size: Count = 1024

    def __post_init__(self) -> None:
        super().__post_init__()
        for sizes in (
            self.probe_sizes,
            *(replace(self.probe_sizes, max_len=length) for length in self.test_lengths or ()),
        ):
            if fault := PROBES[self.probe](sizes).fault():
                where = "" if sizes == self.probe_sizes else f"test_lengths={list(self.test_lengths or ())}: "
                raise ValueError(f"{where}{fault}")

    @cached_property
    def probe_sizes(self) -> Sizes:
        """The sizes of this level, or those that were set. Raises ValueError for one that the probe does not have."""
        kind = PROBES[self.probe]
        wanted = {f.name: getattr(self, f.name) for f in fields(Sizes) if getattr(self, f.name) is not None}
        if foreign := [name for name in wanted if name not in kind.size_names()]:
            raise ValueError(
                f"{foreign[0]}={wanted[foreign[0]]}: the probe {self.probe} has no such size; "
                f"it has {', '.join(kind.size_names())}"
            )
        return replace(kind.levels[self.level], **wanted)

    @cached_property
    def generator(self) -> Probe:
        return PROBES[self.probe](self.probe_sizes)

    @cached_property
    def spec(self) -> DataSpec:
        probe = self.generator
        return DataSpec(
            name=f"probe_{self.probe}_{self.probe_sizes.label}",
            num_classes=probe.classes,
            channels=0 if probe.vocab_size else 1,
            max_len=max(self.probe_sizes.max_len, *(self.test_lengths or (0,))),
            vocab_size=probe.vocab_size,
            targets="answers",
            chance=probe.chance,
            bag_level=probe.bag_level,
        )

    def make_splits(self) -> dict[Stage, Split]:
        hundred_steps = 100 * self.batch_size * self.plan.accumulate  # of one process
        stream = ProbeStream(self.generator, self.generator_seed, self.plan.seed, hundred_steps)
        return {
            "train": stream,
            "val": self._draw_fixed("validation", self.generator, VAL, self.num_val),
            "test": self._draw_fixed("test", self.generator, TEST, self.num_test),
        }

    def sizes(self) -> dict[str, int]:
        """Number of validation and test sequences; training has no number of them."""
        return {name: size for name, size in super().sizes().items() if name != "num_train"}

    def _draw_fixed(self, name: str, probe: Probe, kind: int, count: int, *seeds: int) -> FixedDraw:
        return FixedDraw(*probe.draw(np.random.default_rng((self.generator_seed, kind, *seeds)), count), name)

    def at_length(self, length: int) -> FixedDraw:
        """Test sequences of another number of tokens."""
        probe = PROBES[self.probe](replace(self.probe_sizes, max_len=length))
        return self._draw_fixed("test", probe, LONGER, self.num_test, length)

    def test_groups(self) -> tuple[str, np.ndarray]:
        """What accuracy is listed by, and the group (n, N) of each answer of the test draw."""
        return self.generator.grouped_by, self.generator.groups(cast(FixedDraw, self.splits["test"]).inputs)

    def content_sha256(self) -> str:
        self.setup()
        digest = hashlib.sha256()
        for split in (self.splits["val"], self.splits["test"]):
            drawn = cast(FixedDraw, split)
            digest.update(drawn.inputs.tobytes() + drawn.targets.tobytes())
        return digest.hexdigest()

    def is_official(self) -> tuple[None, str]:
        return None, "drawn by our own generator; there is no published set"

    def fingerprint(self) -> dict[str, Any]:
        found = super().fingerprint()
        return found | {"name": f"{self.spec.name} (generator seed {self.generator_seed})"}
