"""Series of one or several channels with a class or a number each: kept once, then scaled and cut into patches."""

import json
import logging
import math
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
import torch

from sliceformer_lab.batch import Batch
from sliceformer_lab.config.option_types import Count, Fraction
from sliceformer_lab.data.cache import IDENTITY, cached_folder
from sliceformer_lab.data.cached_data import BucketedData
from sliceformer_lab.data.class_names import class_names_of
from sliceformer_lab.data.loader import Split
from sliceformer_lab.data.own_data import OwnData
from sliceformer_lab.data.own_targets import Kind
from sliceformer_lab.data.rounding import check_targets, find_rounding
from sliceformer_lab.data.sequences.base import NOTHING, SequenceSplit, SequenceStore
from sliceformer_lab.data.series.coding import (
    CODING_FILE,
    SeriesCoding,
    as_series,
    channel_statistics,
    own_scale,
    stretched,
)
from sliceformer_lab.data.series.labels import as_whole_numbers, merged_spellings, number_first
from sliceformer_lab.data.series.series_tables import Series
from sliceformer_lab.data.spec import Choice, Content, DataSpec
from sliceformer_lab.data.splits import STAGES, Stage, split_by_class, split_rows
from sliceformer_lab.data.strings import Strings
from sliceformer_lab.data.table_files import are_measured, number_of
from sliceformer_lab.errors import DataError
from sliceformer_lab.runs.files import write_json
from sliceformer_lab.runs.plain_text import counted

log = logging.getLogger(__name__)

Gaps = Literal["mark", "interpolate"]

EVEN_PATCH = 8  # time steps; longer patches are chosen as multiples of it, which a convolution can stride over
NUM_PATCHES = 64  # of a series of median length, that patch_len=null aims at
TIMES_MEDIAN = 4  # of the median length, that max_len=null cuts longer series to
STORE, STAGE_FILE, LABELS, PLACES = "series", "stages.npy", "labels", f"{IDENTITY}places"
PLAIN = (0.0, 1.0)  # the scale of numbers that the coding has scaled


@dataclass
class SeriesSplit(SequenceSplit):
    """Series of a store. Inputs are patches (B, N, patch_len * features) float, zeros on padding."""

    scale: tuple[float, float] | None = PLAIN
    coding: SeriesCoding = field(kw_only=True)
    stretch: float = 0.0  # of training series

    def lengths(self) -> np.ndarray:
        return self.coding.count(self.store.lengths[self.rows])

    def _cut(self, sequence: np.ndarray) -> np.ndarray:
        return self.coding.patches(stretched(sequence, self.stretch))


@dataclass(kw_only=True, eq=False, repr=False)
class SeriesData(BucketedData, OwnData):
    """Series (L, C) with one class or number each, which a subclass reads.

    Null options follow from the series that train: `patch_len` gives one of median length about NUM_PATCHES patches;
    `max_len` is the longest, at most TIMES_MEDIAN medians; `gaps` marks missing values if there are any. `kind` is
    classification unless the labels are measured numbers.
    """

    content_kind = "series"
    takes_new = True

    patch_len: Count | None = None
    max_len: Count | None = None
    gaps: Gaps | None = None
    own_scale: bool = False
    stretch: Fraction = 0.0
    kind: Kind | None = None
    bucket: bool = True
    batch_size: Count | None = None
    val_fraction: Fraction = 0.2

    @abstractmethod
    def source(self) -> dict[str, Any]:
        """Everything that decides the series, files as paths. Raises DataError if a file is missing."""

    @abstractmethod
    def read(self) -> Iterable[Series]:
        """The series in the order of the files. Raises DataError."""

    @property
    def spec(self) -> DataSpec:
        """Reads the data. Raises DataError."""
        store, coding = self._store, self._unscaled
        counts = coding.count(store.lengths)
        is_class = self._kind == "classification"
        return DataSpec(
            name=self.own_name,
            targets="class" if is_class else "numbers",
            num_classes=len(self.class_names()),
            num_targets=0 if is_class else 1,
            channels=coding.patch_len * coding.features,
            patch_len=coding.patch_len,
            max_len=int(counts.max()),
            ragged=bool(counts.min() < counts.max()),
        )

    def choices(self) -> list[Choice]:
        coding, median, longest = self._unscaled, self._median_len, int(self._training_lengths.max())
        of_median = f"the median training series has {median:,} steps"
        chosen = [
            Choice("data.max_len", coding.max_len, f"the longest training series has {longest:,} steps"),
            Choice("data.patch_len", coding.patch_len, of_median),
            Choice(
                "data.gaps",
                "mark" if coding.marks_gaps else "interpolate",
                f"{'values' if self._has_gaps else 'no values'} of training series are missing",
            ),
            self._chosen_kind,
        ]
        return [c for c in chosen if getattr(self, c.option.removeprefix("data.")) is None] + super().choices()

    def prepare(self) -> Path:
        key = {"title": self.title, "identity": 3, **self.source()}
        return cached_folder(self.cache_root, self.title, key, self._build)

    def _build(self, folder: Path) -> None:
        found = list(self.read())
        if not found:
            raise DataError(f"{self.origin} holds no series; add some")
        channels = found[0].values.shape[1]
        for series in found:
            if series.values.shape[1] != channels:
                raise DataError(
                    f"{series.place} has {series.values.shape[1]} channels, but {found[0].place} has {channels}; give "
                    "all series the same channels"
                )
        if fault := find_rounding([series.values for series in found]):
            raise DataError(f"{self.origin}: {fault}")
        stored = [series.values.astype(np.float32) for series in found]
        SequenceStore.write(folder, STORE, stored, np.arange(len(found)))
        np.save(folder / STAGE_FILE, np.array([-1 if s.stage is None else STAGES.index(s.stage) for s in found]))
        Strings.write(folder, LABELS, (series.label for series in found))
        Strings.write(folder, PLACES, (self.short_place(series.place) for series in found))
        gaps = any(np.isnan(series.values).any() for series in found)
        write_json(folder / self.facts_file, {"channels": channels, "gaps": gaps})
        log.info(f"{self.own_name}: {len(found):,} series of {counted(channels, 'channel')}, kept for all runs")

    def short_place(self, place: str) -> str:
        """The place of a series without the folder of the data: "texts.csv, line 7"."""
        return Path(place).name

    @cached_property
    def _store(self) -> SequenceStore:
        folder = self.folder
        return replace(SequenceStore.open(folder, STORE), places=Strings.open(folder, PLACES))

    @cached_property
    def _labels(self) -> list[str]:
        """The classes, whole numbers as 1 instead of 1.0000e+00, or numbers as they are written."""
        return as_whole_numbers(self._written_labels)

    @cached_property
    def _written_labels(self) -> list[str]:
        strings = Strings.open(self.folder, LABELS)
        return [strings[row] for row in range(len(strings))]

    @cached_property
    def _chosen_kind(self) -> Choice:
        labels = self._labels
        if are_measured(labels):
            different = len(set(labels))
            return Choice("data.kind", "regression", f"{different:,} different numbers in {len(labels):,} series")
        return Choice("data.kind", "classification", f"{len(set(labels)):,} different labels")

    @property
    def _kind(self) -> str:
        return self.kind or str(self._chosen_kind.value)

    @cached_property
    def _rows(self) -> dict[Stage, np.ndarray]:
        """The rows of each split in the store."""
        targets = self._targets()
        stages = np.load(self.folder / STAGE_FILE)
        published = {STAGES[stage] for stage in np.unique(stages) if stage > 0}
        if self._kind == "regression":
            stages[stages <= 0] = 0 if "test" in published else -1  # `split_rows` tests a share of the latter
            return split_rows(stages, self.held_out_shares(()), self.split_seed, self.own_name)
        training = np.flatnonzero(stages <= 0)
        held = split_by_class(
            torch.from_numpy(targets[training]), self.held_out_shares(published), self.split_seed, self.own_name
        )
        rows: dict[Stage, np.ndarray] = {stage: np.flatnonzero(stages == STAGES.index(stage)) for stage in published}
        return {**rows, **{stage: training[part.numpy()] for stage, part in held.items()}}

    @property
    def _training_lengths(self) -> np.ndarray:
        lengths: np.ndarray = self._store.lengths[self._rows["train"]]
        return lengths

    @property
    def _median_len(self) -> int:
        return max(1, int(np.median(self._training_lengths)))

    @cached_property
    def _has_gaps(self) -> bool:
        """Whether values of training series are missing."""
        return self.facts()["gaps"] and any(np.isnan(self._store[row]).any() for row in self._rows["train"])

    @property
    def _unscaled(self) -> SeriesCoding:
        """The coding before the training split is known: with means 0 and deviations 1."""
        longest, median = int(self._training_lengths.max()), self._median_len
        max_len = self.max_len or min(longest, TIMES_MEDIAN * median)
        chosen = math.ceil(min(median, max_len) / NUM_PATCHES)
        patch_len = self.patch_len or (chosen if chosen <= EVEN_PATCH else chosen + -chosen % EVEN_PATCH)
        marks = self._has_gaps if self.gaps is None else self.gaps == "mark"
        channels = self.facts()["channels"]
        return SeriesCoding((0.0,) * channels, (1.0,) * channels, patch_len, max_len, marks, self.own_scale)

    def class_names(self) -> tuple[str, ...]:
        return self._class_names if self._kind == "classification" else ()

    @cached_property
    def _class_names(self) -> tuple[str, ...]:
        """The classes. Raises DataError for one class, or for one that does not train."""
        stages = np.load(self.folder / STAGE_FILE).clip(min=0)  # a series without a split may train
        rows = zip(stages.tolist(), self._labels, strict=True)
        examples = [(STAGES[stage], self._store.places[row], label) for row, (stage, label) in enumerate(rows)]
        return tuple(sorted(class_names_of(examples, "series"), key=number_first))

    def target_names(self) -> tuple[str, ...]:
        return () if self._kind == "classification" else (self.number_name,)

    @property
    def number_name(self) -> str:
        """What the numbers of a regression are called."""
        return "target"

    def _targets(self) -> np.ndarray:
        """Classes (n,) int64, or numbers (n, 1) float32. Raises DataError for a label that is no number."""
        if self._kind == "classification":
            numbers = {name: number for number, name in enumerate(self.class_names())}
            return np.array([numbers[label] for label in self._labels], dtype=np.int64)
        places, labels = self._store.places, self._written_labels
        advice = ", or set data.kind=classification"
        values = [number_of(places[row], self.number_name, label, advice) for row, label in enumerate(labels)]
        rows = np.array(values)[:, None]
        check_targets(self.origin, rows.tolist(), self.target_names())
        return rows.astype(np.float32)

    def make_splits(self) -> dict[Stage, Split]:
        store = replace(self._store, targets=self._targets())
        rows = self._rows
        coding = self._unscaled
        cut = (store[row][: coding.max_len] for row in rows["train"])
        mean, std = channel_statistics(map(own_scale, cut) if self.own_scale else cut, coding.channels)
        coding = replace(coding, mean=tuple(mean.tolist()), std=tuple(std.tolist()))
        stretch = {"train": self.stretch}
        return {
            stage: SeriesSplit(store, coding.max_len, coding=coding, rows=rows[stage], stretch=stretch.get(stage, 0.0))
            for stage in STAGES
        }

    @property
    def coding(self) -> SeriesCoding:
        """How series become patches: that of a trained model's run folder, or of the training split."""
        if self._saved_coding is not None:
            return self._saved_coding
        self.setup()
        return cast(SeriesSplit, self.splits["train"]).coding

    @cached_property
    def _saved_coding(self) -> SeriesCoding | None:
        folder = self.plan.run_folder
        return None if folder is None else SeriesCoding.read(folder)

    def save_encoder(self, folder: Path) -> None:
        self.coding.write(folder)

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"coding": json.dumps(asdict(self.coding))}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes the coding of the checkpoint, with which its weights belong together."""
        coding = SeriesCoding.from_json(json.loads(state_dict["coding"]))
        if (channels := self.facts()["channels"]) != coding.channels:
            raise DataError(
                f"{self.origin}: its series have {channels} channels, and the model was trained on {coding.channels}"
            )
        self.check_coding(coding)
        for split in self.splits.values():
            cast(SeriesSplit, split).coding = coding

    def check_encoding(self, state_dict: Mapping[str, Any]) -> None:
        """Raises DataError if the coding in the run folder is not that of a checkpoint, which makes patches as it."""
        if (saved := self._saved_coding) and saved != SeriesCoding.from_json(json.loads(state_dict["coding"])):
            raise DataError(
                f"{self.plan.run_folder}/{CODING_FILE} is not that with which the checkpoint was trained; put the file "
                "of this run back"
            )

    def check_coding(self, coding: SeriesCoding) -> None:
        """Raises DataError if the columns of these data are not those that a checkpoint was trained on."""

    def encode_one(self, content: Content) -> np.ndarray:
        """The patches (N, patch_len * features) of a series (L,) or (L, C)."""
        values = as_series(content, "it").astype(np.float32)
        coding = self.coding
        if values.shape[1] != coding.channels:
            raise DataError(f"it has {values.shape[1]} channels, and the model was trained on {coding.channels}")
        return coding.patches(values)

    def is_cut(self, content: Content, encoded: Any) -> bool:
        del encoded
        return isinstance(content, np.ndarray) and len(content) > self.coding.max_len

    def collate(self, encoded: Sequence[Any]) -> Batch:
        longest = max(map(len, encoded))
        inputs, padding = SequenceSplit(NOTHING, longest, scale=PLAIN, rows=np.arange(0)).padded(list(encoded))
        return Batch.unlabelled(inputs, padding)

    @property
    def rule_of_inputs(self) -> str:
        """How a program outside this package makes the inputs of a series."""
        coding = self.coding
        gaps = ", then a column of 1 (observed) or 0 (missing) for each" if coding.marks_gaps else ""
        scale = "bring each channel of it to mean 0 and deviation 1, " if coding.own_scale else ""
        return (
            f"take the first {coding.max_len:,} steps of a series, {scale}standardise each channel by `mean` and `std` "
            f"of series.json, fill missing values by linear interpolation{gaps}, and write {coding.patch_len} "
            "consecutive steps into each row, the last one filled with 0"
        )

    def remarks(self) -> list[str]:
        """Counts the series that are cut, and names labels that are one number."""
        found = super().remarks()
        max_len = self.coding.max_len
        if cut := int((self._store.lengths > max_len).sum()):
            found.append(f"{cut:,} of {len(self._store):,} series are cut to data.max_len={max_len:,} steps")
        is_class = self._kind == "classification"
        if is_class and (same := merged_spellings(self._written_labels, self._labels)):
            found.append(
                f"the labels {', '.join(same)} are one number and so one class; write other ones if they differ"
            )
        return found
