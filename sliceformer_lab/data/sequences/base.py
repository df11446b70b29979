"""Sequences of many lengths: kept in memory-mapped files, padded batch by batch."""

import logging
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from pytorch_lightning.utilities import rank_zero_only
from torch import Tensor

from sliceformer_lab.batch import Batch, Padding
from sliceformer_lab.data.base import DataModule, Positive, Stage
from sliceformer_lab.data.cache import content_digest
from sliceformer_lab.data.images.base import carve
from sliceformer_lab.data.loader import Split
from sliceformer_lab.errors import DataError

log = logging.getLogger(__name__)

PARTS = ("tokens", "offsets", "targets")


@dataclass(frozen=True)
class SequenceStore:
    """Sequences in files of one folder that all processes map into memory: opening takes no time."""

    tokens: np.ndarray  # (total, ...) of all sequences, one after the other
    offsets: np.ndarray  # (n + 1,) int64, where each begins
    targets: np.ndarray  # (n, ...)

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, row: int) -> np.ndarray:
        part: np.ndarray = self.tokens[self.offsets[row] : self.offsets[row + 1]]
        return part

    @property
    def lengths(self) -> np.ndarray:
        """(n,) int64."""
        return np.diff(self.offsets)

    @classmethod
    def open(cls, folder: Path, stage: str) -> Self:
        """What `write` left under the name `stage`."""
        return cls(*(_mapped(folder / f"{stage}_{part}.npy") for part in PARTS))

    @staticmethod
    def is_in(folder: Path, stage: str) -> bool:
        """Whether `write` has left anything under the name `stage`."""
        return all((folder / f"{stage}_{part}.npy").is_file() for part in PARTS)

    def __reduce__(self) -> tuple[Any, ...]:
        """Files are mapped again where this is unpickled: a worker that is not forked would get a copy of them."""
        return _store, tuple(getattr(part, "filename", part) for part in (self.tokens, self.offsets, self.targets))

    @staticmethod
    def write(folder: Path, stage: str, sequences: Iterable[np.ndarray], targets: Sequence[Any] | np.ndarray) -> None:
        """Write sequences (n_i, ...) of one dtype and their targets. Raises ValueError if their counts differ."""
        parts = list(sequences)
        if len(parts) != len(targets):
            raise ValueError(f"{len(parts)} sequences have {len(targets)} targets")
        offsets = np.cumsum([0, *map(len, parts)], dtype=np.int64)
        np.save(folder / f"{stage}_tokens.npy", np.concatenate(parts))
        np.save(folder / f"{stage}_offsets.npy", offsets)
        np.save(folder / f"{stage}_targets.npy", np.asarray(targets))


def _store(*parts: Path | str | np.ndarray) -> SequenceStore:
    return SequenceStore(*(part if isinstance(part, np.ndarray) else _mapped(part) for part in parts))


def _mapped(file: Path | str) -> np.ndarray:
    array: np.ndarray = np.load(file, mmap_mode="r")
    return array


@dataclass
class SequenceSplit(Split):
    """Some sequences of a store, cut to max_len tokens. Ids (B, N) int64, 0 on padding, or numbers (B, N, F) float.

    `pad_to_max_len` pads every batch to max_len, as published code does; otherwise to the longest of the batch. `end`
    is an id put behind every sequence after it was cut.
    """

    store: SequenceStore
    rows: np.ndarray  # (n,) positions in the store
    max_len: int
    pad_to_max_len: bool = False
    scale: tuple[float, float] | None = None  # numbers become (x - mean) / std of these; None: token ids
    end: int | None = None
    order: np.ndarray | None = None  # (max_len,) where in a sequence each token is taken from; None: as they stand

    def __len__(self) -> int:
        return len(self.rows)

    def subset(self, rows: np.ndarray) -> Self:
        return replace(self, rows=self.rows[rows])

    def lengths(self) -> np.ndarray:
        lengths: np.ndarray = np.minimum(self.store.lengths[self.rows], self.max_len) + (self.end is not None)
        return lengths

    def num_truncated(self) -> int:
        """How many of the sequences are longer than max_len."""
        return int((self.store.lengths[self.rows] > self.max_len).sum())

    def batch(self, rows: list[int]) -> Batch:
        places = self.rows[rows]
        inputs, padding = self.padded([self.store[place] for place in places])
        target = torch.from_numpy(np.array(self.store.targets[places]))
        return Batch(inputs, target, torch.tensor(rows), padding)

    def padded(self, sequences: list[np.ndarray]) -> tuple[Tensor, Padding | None]:
        """Inputs of some sequences (n_i,) or (n_i, F), and their padding."""
        sequences = [self._cut(sequence) for sequence in sequences]
        lengths = torch.tensor([len(sequence) for sequence in sequences])
        width = self.max_len + (self.end is not None) if self.pad_to_max_len else int(lengths.max())
        kind = torch.int64 if self.scale is None else torch.float32
        inputs = torch.zeros(len(sequences), width, *sequences[0].shape[1:], dtype=kind)
        for row, sequence in zip(inputs, sequences, strict=True):
            row[: len(sequence)] = torch.from_numpy(np.array(sequence, dtype=np.int64 if self.scale is None else None))
        if self.scale is not None:
            mean, std = self.scale
            inputs = ((inputs - mean) / std).reshape(len(sequences), width, -1)
        return inputs, Padding.from_lengths(lengths, width)

    def _cut(self, sequence: np.ndarray) -> np.ndarray:
        kept = sequence[: self.max_len] if self.order is None else sequence[self.order]
        return kept if self.end is None else np.append(kept, self.end)


@dataclass(kw_only=True, eq=False, repr=False)
class SequenceData(DataModule):
    """Labelled sequences. `build` writes them once into a cache folder, as a SequenceStore for every split."""

    title: ClassVar[str]

    max_len: Positive
    bucket: bool = True
    pad_to_max_len: bool = False

    @property
    def bucketed(self) -> bool:  # type: ignore[override]
        return self.bucket

    @abstractmethod
    def folder(self) -> Path:
        """The cache folder that `prepare_data` has filled."""

    @abstractmethod
    def is_official(self) -> tuple[bool, str]:
        """Whether what was read is the published set, and how that was found out."""

    def split(self, store: SequenceStore, rows: np.ndarray) -> SequenceSplit:
        """Rows of a store as a split."""
        return SequenceSplit(store, rows, self.max_len, self.pad_to_max_len)

    def stages(self) -> tuple[Stage, ...]:
        """The splits that the set comes with; of the others, validation is carved out of training."""
        return ("train", "test")

    def make_splits(self) -> dict[Stage, Split]:
        stores = {stage: SequenceStore.open(self.folder(), stage) for stage in self.stages()}
        rows = {stage: np.arange(len(store)) for stage, store in stores.items()}
        kept, held = carve(torch.from_numpy(np.array(stores["train"].targets)), self._carved, self.split_seed)
        if self._carved and not len(held):
            raise DataError(
                f"{self.title}: data.val_fraction={self.val_fraction} of {len(rows['train'])} training examples holds "
                "out none; make it larger"
            )
        rows["train"] = kept.numpy()
        if "val" not in stores:
            stores["val"], rows["val"] = stores["train"], held.sort().values.numpy()
        splits = {stage: self.split(stores[stage], rows[stage]) for stage in stores}
        self._tell_truncated(splits)
        return dict(splits)

    @property
    def _carved(self) -> float:
        return 0.0 if "val" in self.stages() else self.val_fraction

    @rank_zero_only
    def _tell_truncated(self, splits: dict[Stage, SequenceSplit]) -> None:
        cut = sum(split.num_truncated() for split in splits.values())
        if cut:
            total = sum(map(len, splits.values()))
            log.info(f"{self.title}: {cut:,} of {total:,} sequences are cut to data.max_len={self.max_len}")

    def fingerprint(self) -> dict[str, Any]:
        sha256 = content_digest(self.folder())
        official, note = self.is_official()
        return self.identified(sha256, official, note)
