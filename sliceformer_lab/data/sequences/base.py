"""Sequences of different lengths: kept in memory-mapped files, padded batch by batch; pictures as their pixels."""

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from torch import Tensor

from sliceformer_lab.batch import Batch, Padding
from sliceformer_lab.config.option_types import Count, Natural, Processes
from sliceformer_lab.data.cached_data import BucketedData, StoredSplit
from sliceformer_lab.data.images.base import NAMES
from sliceformer_lab.data.loader import Split
from sliceformer_lab.data.spec import Content, DataSpec
from sliceformer_lab.data.splits import STAGES, Stage, hold_out
from sliceformer_lab.data.strings import UNKNOWN, Numbered, Places
from sliceformer_lab.order import TokenOrder, token_order

PARTS = ("tokens", "offsets", "targets")


@dataclass(frozen=True)
class SequenceStore:
    """Sequences in files of one folder that all processes map into memory, so that opening takes no time."""

    tokens: np.ndarray  # (total, ...) of all sequences, concatenated
    offsets: np.ndarray  # (n + 1,) int64, start of each sequence in `tokens`, and their total length
    targets: np.ndarray  # (n, ...)
    places: Places = UNKNOWN
    digests: np.ndarray | None = None  # (n, 32) uint8 of what tokens were made from; None: the tokens are the content

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, row: int) -> np.ndarray:
        part: np.ndarray = self.tokens[self.offsets[row] : self.offsets[row + 1]]
        return part

    @property
    def lengths(self) -> np.ndarray:
        """Length of each sequence (n,) int64."""
        return np.diff(self.offsets)

    @classmethod
    def open(cls, folder: Path, stage: str) -> Self:
        """The sequences that `write` stored as `stage`."""
        found = cls(*(_map_array(folder / f"{stage}_{part}.npy") for part in PARTS))
        digests = folder / f"{stage}_digests.npy"
        return replace(found, digests=_map_array(digests)) if digests.is_file() else found

    @staticmethod
    def is_in(folder: Path, stage: str) -> bool:
        """Whether `write` has stored sequences as `stage`."""
        return all((folder / f"{stage}_{part}.npy").is_file() for part in PARTS)

    def __reduce__(self) -> tuple[Any, ...]:
        """Unpickling maps the files again; otherwise a worker that is not forked would get a copy of them."""
        arrays = (self.digests, self.tokens, self.offsets, self.targets)
        return _open_store, (self.places, *(getattr(part, "filename", part) for part in arrays))

    @staticmethod
    def write(folder: Path, stage: str, sequences: Iterable[np.ndarray], targets: Sequence[Any] | np.ndarray) -> None:
        """Write sequences (n_i, ...) of one dtype and their targets."""
        parts = list(sequences)
        offsets = np.cumsum([0, *map(len, parts)], dtype=np.int64)
        np.save(folder / f"{stage}_tokens.npy", np.concatenate(parts))
        np.save(folder / f"{stage}_offsets.npy", offsets)
        np.save(folder / f"{stage}_targets.npy", np.asarray(targets))


def _open_store(places: Places, digests: str | np.ndarray | None, *parts: str | np.ndarray) -> SequenceStore:
    tokens, offsets, targets = map(_map_array, parts)
    return SequenceStore(tokens, offsets, targets, places, None if digests is None else _map_array(digests))


def _map_array(content: Path | str | np.ndarray) -> np.ndarray:
    """The array in a file, mapped into memory; an array stays as it is."""
    return content if isinstance(content, np.ndarray) else np.load(content, mmap_mode="r")


NOTHING = SequenceStore(np.zeros(0), np.zeros(1, np.int64), np.zeros(0, np.int64))


@dataclass
class SequenceSplit(StoredSplit):
    """Sequences of a store, cut to max_len tokens. Ids (B, N) int64, 0 on padding, or numbers (B, N, F) float.

    `pad_to_max_len` pads every batch to max_len, as published code does, instead of to the longest sequence of the
    batch. `end` is an id that is appended to every sequence after it was cut.
    """

    store: SequenceStore
    max_len: int
    pad_to_max_len: bool = False
    scale: tuple[float, float] | None = None  # mean and std that normalise numbers; None: token ids
    end: int | None = None  # a token after the kept ones
    keeps_last: bool = False  # a sequence that is cut keeps its last token, as [SEP] of BERT
    order: np.ndarray | None = None  # (max_len,) position in the sequence of each token; None: their own order

    def lengths(self) -> np.ndarray:
        lengths: np.ndarray = np.minimum(self.store.lengths[self.rows], self.max_len) + (self.end is not None)
        return lengths

    def place(self, row: int) -> str:
        return self.store.places[self.rows[row]]

    def stored(self, row: int) -> np.ndarray:
        """All tokens (n, ...), also those beyond max_len."""
        return self.store[self.rows[row]]

    def contents(self) -> Iterator[bytes]:
        digests = self.store.digests
        return super().contents() if digests is None else (digests[row].tobytes() for row in self.rows)

    def num_truncated(self) -> int:
        """Number of sequences that are longer than max_len."""
        return int((self.store.lengths[self.rows] > self.max_len).sum())

    def targets_at(self, rows: list[int]) -> Tensor:
        return torch.from_numpy(np.array(self.store.targets[self.rows[rows]]))

    def batch(self, rows: list[int]) -> Batch:
        inputs, padding = self.padded([self.store[place] for place in self.rows[rows]])
        return Batch(inputs, self.targets_at(rows), torch.tensor(rows), padding)

    def padded(self, sequences: list[np.ndarray]) -> tuple[Tensor, Padding | None]:
        """Inputs made from sequences (n_i,) or (n_i, F), and their padding."""
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
        if self.keeps_last and len(sequence) > self.max_len:
            kept = np.append(kept[:-1], sequence[-1])
        return kept if self.end is None else np.append(kept, self.end)


@dataclass(kw_only=True, eq=False, repr=False)
class SequenceData(BucketedData):
    """Labelled sequences. The cache folder has a SequenceStore for every split."""

    max_len: Count
    bucket: bool = True
    pad_to_max_len: bool = False

    def split(self, store: SequenceStore, rows: np.ndarray) -> SequenceSplit:
        return SequenceSplit(store, self.max_len, self.pad_to_max_len, rows=rows)

    def source_places(self, stage: Stage) -> Places:
        """Where the sequences of a split that the set comes with come from."""
        return Numbered(f"{stage} example")

    def is_cut(self, content: Content, encoded: Any) -> bool:
        """Whether it has more tokens than `max_len`."""
        del content
        return len(encoded) > self.max_len

    def collate(self, encoded: Sequence[Any]) -> Batch:
        """A batch of tokens (n_i, ...)."""
        inputs, padding = self.split(NOTHING, np.arange(0)).padded(list(encoded))
        return Batch.unlabelled(inputs, padding)

    def stages(self) -> tuple[Stage, ...]:
        """The splits that the set comes with; without "val", validation examples are held out from training."""
        return ("train", "test")

    def num_stored(self) -> dict[str, int]:
        """Number of sequences of each split that was read, without any limit."""
        return {stage: len(SequenceStore.open(self.folder, stage)) for stage in self.stages()}

    def held_out(self, targets: np.ndarray, published: Container[Stage]) -> tuple[Tensor, Tensor]:
        """Positions of the training sequences, with `targets` (n, ...), that train and that validate, shuffled.

        None validate if a split for that is `published`. Raises DataError.
        """
        share = self.held_out_shares(published).get("val", 0.0)
        return hold_out(torch.from_numpy(targets), share, self.split_seed, self.title, "val")

    def make_splits(self) -> dict[Stage, Split]:
        stores = {
            stage: replace(SequenceStore.open(self.folder, stage), places=self.source_places(stage))
            for stage in self.stages()
        }
        rows = {stage: np.arange(len(store)) for stage, store in stores.items()}
        kept, held = self.held_out(np.array(stores["train"].targets), stores)
        rows["train"] = kept.numpy()
        if "val" not in stores:
            stores["val"], rows["val"] = stores["train"], held.sort().values.numpy()
        if "test" not in stores:
            stores["test"], rows["test"] = stores["train"], np.arange(0)
        splits = {stage: self.split(stores[stage], rows[stage]) for stage in stores}
        return dict(splits)

    def remarks(self) -> list[str]:
        """Counts the sequences that `max_len` cuts."""
        splits = [split for split in self.splits.values() if isinstance(split, SequenceSplit)]
        if not (cut := sum(split.num_truncated() for split in splits)):
            return super().remarks()
        total = sum(map(len, splits))
        return [*super().remarks(), f"{cut:,} of {total:,} sequences are cut to data.max_len={self.max_len}"]


@dataclass(kw_only=True, eq=False, repr=False)
class GeneratedData(SequenceData):
    """Sequences that our generator draws, or with `source=official` those of the published files in `root`."""

    source: Literal["generated", "official"] = "generated"
    generator_seed: Natural = 0
    processes: Processes | None = None

    def stages(self) -> tuple[Stage, ...]:
        return STAGES

    def fingerprint(self) -> dict[str, Any]:
        found = super().fingerprint()
        if self.source == "generated":
            found["name"] = f"{self.spec.name} (generated with seed {self.generator_seed})"
        return found


@dataclass(kw_only=True, eq=False, repr=False)
class PixelData(SequenceData):
    """Grey pictures as sequences of pixels. A pixel is one of 256 token ids, or with `pixels=values` a number."""

    content_kind = "picture"
    side: ClassVar[int]  # of a picture in pixels
    scale: ClassVar[tuple[float, float]]  # grey level that becomes 0, and levels that become 1

    pixels: Literal["tokens", "values"] = "tokens"
    token_order: TokenOrder = "raster"

    @property
    def set_name(self) -> str:
        """The name in `spec` without the length."""
        return self.title

    @property
    def spec(self) -> DataSpec:
        """Its name contains the length."""
        tokens = self.pixels == "tokens"
        return DataSpec(
            name=f"{self.set_name}_{self.max_len}",
            num_classes=len(self.class_names()),
            max_len=self.max_len,
            vocab_size=256 if tokens else 0,
            channels=0 if tokens else 1,
            grey_levels=True,
        )

    def source_places(self, stage: Stage) -> Numbered:
        return Numbered(f"{NAMES[stage]} picture")

    def content(self, stored: Content | None) -> Content | None:
        """The grey picture (side, side)."""
        return np.array(stored).reshape(self.side, self.side)

    def split(self, store: SequenceStore, rows: np.ndarray) -> SequenceSplit:
        scale = None if self.pixels == "tokens" else self.scale
        order = token_order(self.token_order, (self.side, self.side), first=self.max_len)
        positions = None if order is None else order.numpy()
        return SequenceSplit(store, self.max_len, self.pad_to_max_len, scale, order=positions, rows=rows)
